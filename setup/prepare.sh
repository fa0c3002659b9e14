#!/bin/sh
# Bring this machine and checkout to where lab.py and the tests can run.
#
# Packages from host/packages.txt, by the names that host/systems.txt has for this
# distribution, then a virtual environment in .venv with the packages of requirements.lock.
# What is there is left alone, and needs no root.  Says on standard error what it does.
# Exit status: 0 ready, 3 this host cannot be made ready.
#
# Root on Debian and Ubuntu has packages installed that are missing; anybody else, and
# everybody on another system, is shown the line that installs them, and goes on where only
# useful ones are.
#
# With the argument "tests" also the packages, Debian's and Python's, that only checks and the
# lab's own tests need.
#
# Environment: PYTHON names the interpreter to build .venv with.
set -eu
# What root's boxes read belongs to another user than they do (host/sandbox.py).
[ "$(id -u)" != 0 ] || umask 022

cd "$(dirname "$0")/.."
LIST=host/packages.txt
SYSTEMS=host/systems.txt
OS_RELEASE=/etc/os-release
SBIN=/usr/local/sbin:/usr/sbin:/sbin
LOCK=requirements.lock
# The installer, by hash; and the line of the lock below which nothing is that a run needs.
UV=setup/uv.txt
TESTS='# --- for tests'
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

# A list without comments and the space around its bars.
table() {
    sed '/^#/d; /^ *$/d; s/ *| */|/g; s/ *$//' "$1"
}

# The number of this distribution's column in the list of systems; nothing if it has none.
column() {
    ids=$(sed -En 's/^ID="?([^"]*)"?$/\1/p' "$OS_RELEASE" 2>/dev/null || :)
    ids="$ids $(sed -En 's/^ID_LIKE="?([^"]*)"?$/\1/p' "$OS_RELEASE" 2>/dev/null || :)"
    heads=$(table "$SYSTEMS" | sed 's/|/ /g; q')
    for id in $ids; do
        number=0
        for head in $heads; do
            number=$((number + 1))
            if [ "$head" = "$id" ]; then
                echo "$number"
                return
            fi
        done
    done
}

# here: standard input's rows of the list of systems, as Debian's name and this system's.
here() {
    cut -d '|' -f "1,$column" | while IFS='|' read -r debian name; do
        case $name in
        '' | =) echo "$debian|$debian" ;;
        -) echo "$debian|" ;;
        *) echo "$debian|$name" ;;
        esac
    done
}

# names_here NAME...: what this system calls Debian's packages.
names_here() {
    table "$SYSTEMS" | here | while IFS='|' read -r debian name; do
        case " $* " in
        *" $debian "*) printf ' %s' "$name" ;;
        esac
    done
}

# provided NAME: whether all that a package of Debian's provides is there.
provided() {
    table "$LIST" | sed -n "s/^$1|[^|]*|\([^|]*\)|.*/\1/p" | {
        read -r all
        for places in $all; do
            found=
            # shellcheck disable=SC2046,SC2086 # places are words, and * in them is the shell's
            for place in $(IFS=,; echo $places); do
                case $place in
                /*) [ ! -e "$place" ] || found=yes ;;
                *) ! (PATH=$PATH:$SBIN; command -v "$place") >/dev/null || found=yes ;;
                esac
            done
            [ -n "$found" ] || return 1
        done
    }
}

# missing NAME...: those that are not installed.
missing() {
    case $install in
    apt-get*)
        have=" $(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null |
            sed -n 's/^[ih]i *//p' | tr '\n' ' ')"
        for name in "$@"; do
            case $have in
            *" $name "*) ;;
            *) printf ' %s' "$name" ;;
            esac
        done
        ;;
    dnf*)
        for name in "$@"; do
            rpm -q --quiet --whatprovides "$name" >/dev/null 2>&1 || printf ' %s' "$name"
        done
        ;;
    pacman*)
        # It prints those that nothing installed provides, and ends with 127 if there are any.
        for name in $(pacman -T "$@" || :); do
            printf ' %s' "$name"
        done
        ;;
    *)
        for name in "$@"; do
            provided "$name" || printf ' %s' "$name"
        done
        ;;
    esac
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

# The line that installs packages, for a person to paste.
install_line() {
    case $install in
    '') echo "install what Debian calls$*, by hand: this system is none of those in $SYSTEMS" ;;
    apt-get*) echo "apt-get update && apt-get install --yes${install#apt-get install}$*" ;;
    *) echo "$install$*" ;;
    esac
}

install_packages() {
    apt_options="--yes${install#apt-get install}"
    say "installing packages:$*"
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

# uv, told what pip was told: it reads no settings of pip's.  A run compiles the few modules that it
# imports; tests do so from many processes at once.
run_uv() {
    compile=
    [ "$group" != tests ] || compile=--compile-bytecode
    index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || :)}
    env UV_SYSTEM_CERTS=1 ${index:+"UV_DEFAULT_INDEX=$index"} ${PIP_CERT:+"SSL_CERT_FILE=$PIP_CERT"} \
        ${PIP_FIND_LINKS:+"UV_FIND_LINKS=$PIP_FIND_LINKS"} \
        ${PIP_DEFAULT_TIMEOUT:+"UV_HTTP_TIMEOUT=$PIP_DEFAULT_TIMEOUT"} \
        .venv/bin/uv pip install --quiet --python .venv/bin/python $compile "$@" >&2
}

run_pip() {
    .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check "$@" >&2
}

# install_pinned FILE [OPTION]...: what FILE names by hash.  pip is slow and reads settings of more kinds.
install_pinned() {
    pinned=$1
    shift
    set -- --require-hashes --requirement "$pinned" "$@"
    run_uv "$@" || { say "uv could not; trying with pip" && run_pip "$@"; } ||
        give_up "$LOCK could not be installed; is the package index within reach?"
}

# part: what the lock has for whom this is, one a paragraph.
part() {
    if [ "$group" = tests ]; then cat "$LOCK"; else sed "/^$TESTS/,\$d" "$LOCK"; fi
}

# fill_venv: wheels only, since building from source would run code that no hash covers.  What has no
# wheel ($SDISTS) is built here by the setuptools of the lock, which is there by then.
fill_venv() {
    say "installing $(part | grep -c '^[a-z]') Python packages from $LOCK into .venv"
    if [ ! -x .venv/bin/uv ]; then
        run_pip --only-binary :all: --require-hashes --requirement "$UV" ||
            say "$UV could not be installed"
    fi
    part | sed "/^$SDISTS==/,/^    #/d" >"$WORK/wheels.txt"
    part | sed -n "/^$SDISTS==/,/^    #/p" >"$WORK/sdists.txt"
    install_pinned "$WORK/wheels.txt" --no-deps --only-binary :all:
    install_pinned "$WORK/sdists.txt" --no-deps --no-build-isolation
    echo "$sum $group" >"$STAMP"
}

# What .venv holds of this lock: "run", "tests", or nothing.
venv_holds() {
    held=$(sed -n "s/^$sum //p" "$STAMP" 2>/dev/null || :)
    [ -z "$held" ] || ! .venv/bin/python -c '' 2>/dev/null || echo "$held"
}

venv_ready() {
    case $(venv_holds) in
    tests | "$group") ;;
    *) return 1 ;;
    esac
}

mkdir -p "$WORK"
# Two set-ups at once would build the same environment: the second one waits.
exec 9>"$WORK/setup.lock"
flock 9

column=$(column)
# The second row of the list of systems; empty on a system that it does not have.
install=
[ -z "$column" ] || install=$(table "$SYSTEMS" | here | sed -n '2s/.*|//p')
sum=$(cat "$LOCK" "$UV" | sha256sum | cut -d ' ' -f 1)
python=.venv/bin/python
need=required
group=${1:-run}
[ "$group" != tests ] || need="$need|tests"
if [ -z "$(venv_holds)" ]; then
    python=$(find_python)
    [ -n "$python$PYTHON" ] || need="$need|python"
fi
# absent_of REGEX: what of these needs is not installed, by the names of this system.
absent_of() {
    # shellcheck disable=SC2046 # package names are words
    set -- $(packages_of "$1")
    # shellcheck disable=SC2046
    [ -z "$column" ] || set -- $(names_here "$@")
    missing "$@"
}

absent=$(absent_of "$need|useful")
may_install=
case $(id -u):$install in
0:apt-get*) may_install=yes ;;
esac
if [ -n "$absent" ] && [ -n "$may_install" ]; then
    install_packages "$absent"
elif [ -n "$absent" ] && [ -n "$(absent_of "$need")" ]; then
    say "these packages are missing; as root, run:"
    install_line "$absent" >&2
    exit 3
elif [ -n "$absent" ] && ! venv_ready; then
    say "these packages are useful and not needed; as root, run:"
    install_line "$absent" >&2
fi

if ! venv_ready; then
    if [ -z "$(venv_holds)" ]; then
        [ -n "$python" ] || python=$(find_python)
        [ -n "$python" ] ||
            give_up "no Python 3.11 or newer with venv and ssl; tried ${PYTHON:-$PYTHONS}"
        [ ! -L .venv ] || give_up ".venv is a link to an environment of another lock: make setup in its" \
            "checkout, or remove the link"
        "$python" -m venv --clear .venv || give_up "$python cannot make a virtual environment"
    fi
    fill_venv
fi
