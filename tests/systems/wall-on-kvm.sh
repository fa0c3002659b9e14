#!/bin/sh
# Try wall mode on a KVM that works, emulated where there is none: one command, any Debian with root.
#
#   tests/systems/wall-on-kvm.sh RELEASE FOLDER OUT [PYTEST OPTION...]
#
#   tests/systems/wall-on-kvm.sh bookworm ~/bookworm out
#
# Every test of wall guests that is of KVM, in a machine made by kvm.sh, which see: guests that
# end well, panic, hang, run out of memory, lose QEMU or the lab; huge pages on host nodes;
# samples of perf; a session that loses KVM, is refused without it, interrupted and resumed.
# OUT.log and OUT/stdout grow while it runs; OUT/tests.xml has each test.
#
# On a host whose own KVM boots kernels no machine is needed:
#
#   PATH=$PWD/.venv/bin:$PATH pytest -k "kvm and not tcg" tests/integration/test_wall_guests.py \
#       tests/integration/test_wall_on_kvm.py
#
# Exit status: pytest's; 2 usage, 3 as kvm.sh.  Environment: as kvm.sh.
set -eu

here=$(dirname "$0")
if [ $# -lt 3 ]; then
    echo "wall-on-kvm.sh: usage: wall-on-kvm.sh RELEASE FOLDER OUT [PYTEST OPTION...]" >&2
    exit 2
fi
release=$1
folder=$2
out=$3
shift 3
# Two guests' worth of huge pages, half of them on each node.
export KVM_CMDLINE="hugepages=700 ${KVM_CMDLINE:-}"
export KVM_BUILD="filemap-v4 --mode wall --no-check --no-twins"
export KVM_TIMEOUT_S="${KVM_TIMEOUT_S:-10800}"
# virtme-ng's programs live in the virtual environment.
# shellcheck disable=SC2016 # the inner shell's
exec sh "$here/kvm.sh" "$release" "$folder" "$out" \
    sh -c 'PATH=$PWD/.venv/bin:$PATH exec python -m pytest "$@"' sh -v -rs \
    -p no:cacheprovider --junitxml /out/tests.xml -k "kvm and not tcg" "$@" \
    tests/integration/test_wall_guests.py tests/integration/test_wall_on_kvm.py
