#!/bin/sh
# Bring this machine and checkout to where lab.py and the tests can run.
#
# Debian packages from host/packages.txt, then a virtual environment in .venv with
# the packages of requirements.lock.  What is there is left alone.  Says on standard
# error what it does.  Exit status: 0 ready, 3 this host cannot be made ready.
#
# With the argument "tests" also the packages that only the lab's own tests need.
#
# Environment: PYTHON names the interpreter to build .venv with.
set -eu

cd "$(dirname "$0")/.."
LIST=host/packages.txt
LOCK=requirements.lock
# Packages of the lock that are published as source only.
SDISTS=dkimpy
WORK=.make
STAMP=.venv/.made-from
PYTHON=${PYTHON:-}
PYTHONS="python3.11 python3 /usr/bin/python3"
# What an interpreter must have; some builds of Python leave one of these out.
USABLE='import ensurepip, ssl, sys, venv, zlib; sys.exit(sys.version_info < (3, 11))'

say() {
    echo "setup: $*" >&2
}

give_up() {
    say "$@"
    exit 3
}

# packages_of REGEX: the names of the packages whose need matches.
packages_of() {
    sed -En "s/^([a-z0-9][a-z0-9.+-]*) *\| *($1) *\|.*/\1/p" "$LIST"
}

# missing NAME...: those that dpkg does not call installed.
missing() {
    have=" $(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^[ih]i *//p' | tr '\n' ' ')"
    for name in "$@"; do
        case $have in
        *" $name "*) ;;
        *) printf ' %s' "$name" ;;
        esac
    done
}

# Print the interpreter to use; the lock is made for 3.11, newer ones are a second choice.
find_python() {
    for name in ${PYTHON:-$PYTHONS}; do
        if "$name" -c "$USABLE" 2>/dev/null; then
            echo "$name"
            return
        fi
    done
}

install_packages() {
    apt_options="--yes --no-install-recommends"
    if [ "$(id -u)" != 0 ]; then
        say "these packages are missing; as root, run:"
        echo "apt-get update && apt-get install $apt_options$*" >&2
        exit 3
    fi
    say "installing Debian packages:$*"
    log=$WORK/apt.log
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    # An unrelated repository that is down must not stop us: install decides.
    apt-get -qq -o Acquire::Retries=3 update >"$log" 2>&1 </dev/null ||
        say "apt-get update failed (see $log); trying with the lists at hand"
    # shellcheck disable=SC2086 # options and names are words
    if ! apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
        install $apt_options $* >>"$log" 2>&1 </dev/null; then
        tail -n 15 "$log" >&2
        give_up "apt-get install failed; the whole output is in $log"
    fi
}

# install_pinned FILE [OPTION]...: what FILE names by hash, as wheels unless an option says so.
install_pinned() {
    pinned=$1
    shift
    .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
        --only-binary :all: "$@" --require-hashes --requirement "$pinned" >&2 ||
        give_up "pip could not install $LOCK; is the package index within reach?"
}

make_venv() {
    say "installing $(grep -c '^[a-z]' "$LOCK") Python packages from $LOCK into .venv"
    "$1" -m venv --clear .venv || give_up "$1 cannot make a virtual environment"
    # Wheels only: building from source would run code that no hash covers.  What has
    # no wheel ($SDISTS) is built here by the setuptools of the lock, which goes in first.
    sed -n '/^setuptools==/,/^    #/p' "$LOCK" >"$WORK/setuptools.txt"
    install_pinned "$WORK/setuptools.txt"
    install_pinned "$LOCK" --no-binary "$SDISTS" --no-build-isolation
    echo "$sum" >"$STAMP"
}

venv_ready() {
    [ "$(cat "$STAMP" 2>/dev/null)" = "$sum" ] && .venv/bin/python -c '' 2>/dev/null
}

mkdir -p "$WORK"
# Two set-ups at once would build the same environment: the second one waits.
exec 9>"$WORK/setup.lock"
flock 9

command -v dpkg-query >/dev/null ||
    give_up "this is not Debian; install by hand what $LIST names"
sum=$(sha256sum <"$LOCK")
python=.venv/bin/python
need='required|useful'
[ "${1:-}" != tests ] || need="$need|tests"
if ! venv_ready; then
    python=$(find_python)
    [ -n "$python$PYTHON" ] || need="$need|python"
fi
# shellcheck disable=SC2046 # package names are words
absent=$(missing $(packages_of "$need"))
[ -z "$absent" ] || install_packages "$absent"

if ! venv_ready; then
    [ -n "$python" ] || python=$(find_python)
    [ -n "$python" ] ||
        give_up "no Python 3.11 or newer with venv and ssl; tried ${PYTHON:-$PYTHONS}"
    make_venv "$python"
fi
