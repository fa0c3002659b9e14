#!/bin/sh
# Run a command of this checkout in a Debian of another release, as an ordinary user.
#
#   tests/systems/debian.sh [--root] RELEASE FOLDER COMMAND [ARGUMENT...]
#
#   tests/systems/debian.sh trixie ~/trixie make setup
#   tests/systems/debian.sh trixie ~/trixie ./lab.py doctor
#
# Needs root, debootstrap and git.  The first call makes a minimal root of RELEASE in
# FOLDER, with the packages that set-up, run there as an ordinary user, says are missing.
# Every call brings the checkout's HEAD into it; .venv, sessions and the cache of kernels
# stay between calls.  COMMAND runs in that checkout, FOLDER/home/lab/twinboot, as the user
# "lab", or as root with --root; what it writes is found there.
#
# Exit status: COMMAND's; 2 usage, 3 the root could not be made.
#
# Environment: DEBIAN_MIRROR is the archive to use, without it the host's own where the
# host is a Debian.  Proxies, time-outs and checks of the host's apt, its own certificate
# authorities and pip's settings hold in the root, too.
set -eu

here=$(cd "$(dirname "$0")/../.." && pwd)
DEFAULT_MIRROR=http://deb.debian.org/debian
# What README wants before set-up.
PACKAGES=ca-certificates,git,make,python3
PATH=$PATH:/usr/sbin:/sbin
CLONE=home/lab/twinboot

say() {
    echo "debian.sh: $*" >&2
}

give_up() {
    say "$1"
    exit "${2:-3}"
}

# The archive that the host's apt reads Debian from; nothing on another distribution.
host_mirror() {
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 2>/dev/null |
        sed -n 's/^Debian Debian \([^ ]*[^/]\)\/*$/\1/p' | sort -u | head -n 1
}

# inside [PROGRAM...]: with the root's own processes and mounts, which end with it.
inside() {
    # shellcheck disable=SC2016 # the inner shell's
    unshare --mount --pid --fork --kill-child sh -euc '
        root=$1
        shift
        for each in dev sys; do
            mount --rbind --make-rslave "/$each" "$root/$each"
        done
        mount -t proc proc "$root/proc"
        exec chroot "$root" "$@"' sh "$folder" "$@"
}

# as USER [PROGRAM...]: in the checkout there.  Of the environment only pip's settings
# and proxies come along, and no folder of the host's.
as() {
    user=$1
    shift
    home=/root
    [ "$user" = root ] || home=/home/$user
    settings=$(env | sed -En '/^PIP_FIND_LINKS=/d; /^(PIP_[A-Z_]*|https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY)=/p')
    # shellcheck disable=SC2016 # the inner shell's
    inside env --ignore-environment "HOME=$home" "USER=$user" TERM="${TERM:-dumb}" LANG=C.UTF-8 \
        PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        sh -euc 'settings=$1 user=$2 clone=$3
            shift 3
            while IFS= read -r line; do
                [ -z "$line" ] || export "${line?}"
            done <<END
$settings
END
            cd "/$clone"
            exec setpriv --reuid "$user" --regid "$user" --init-groups "$@"' \
        sh "$settings" "$user" "$CLONE" "$@"
}

sources() {
    echo "deb $mirror $release main"
    # Neither is there for unstable, which has newer kernels' sources than the lab's alone.
    case $release in
    sid | unstable) echo "deb $mirror stable main" ;;
    *)
        echo "deb $mirror $release-updates main"
        echo "deb ${mirror%/*}/debian-security $release-security main"
        ;;
    esac
}

make_root() {
    command -v debootstrap >/dev/null || give_up "debootstrap is not here: apt-get install debootstrap"
    say "making a root of $release in $folder from $mirror"
    log=$folder.log
    rm -rf "$folder.new"
    debootstrap --variant=minbase --include="$PACKAGES" "$release" "$folder.new" "$mirror" \
        >"$log" 2>&1 </dev/null || give_up "debootstrap failed; its output is in $log"
    sources >"$folder.new/etc/apt/sources.list"
    apt-config dump 2>/dev/null | grep -E '^Acquire::(https?|Retries|Check-[A-Za-z-]*)[: ]' \
        >"$folder.new/etc/apt/apt.conf.d/90host" || :
    for file in /usr/local/share/ca-certificates/*.crt; do
        [ ! -e "$file" ] || cp "$file" "$folder.new/usr/local/share/ca-certificates"
    done
    {
        chroot "$folder.new" update-ca-certificates &&
            chroot "$folder.new" useradd --create-home --user-group lab
    } >>"$log" 2>&1 </dev/null || give_up "the root cannot be prepared; see $log"
    mv "$folder.new" "$folder"
}

# The checkout's HEAD, with nothing else but what git ignores.
bring_checkout() {
    [ -z "$(git -C "$here" status --porcelain)" ] || say "changes that are not committed stay behind"
    target=$folder/$CLONE
    if [ ! -d "$target" ]; then
        git clone --quiet --no-hardlinks --no-checkout "$here" "$target"
    fi
    # It is the user's, and git is careful about that.
    there() { git -c safe.directory='*' -C "$target" "$@"; }
    there fetch --quiet "$here" HEAD
    there checkout --quiet --force --detach FETCH_HEAD
    there clean --quiet --force -d
    chroot "$folder" chown -R lab:lab "/$CLONE"
}

# What set-up, as the user, says is missing.
install_packages() {
    log=$folder.log
    line=$(as lab sh setup/prepare.sh 2>&1 </dev/null | tee -a "$log" | sed -n '/^apt-get /p')
    [ -n "$line" ] || return 0
    say "$line"
    inside env DEBIAN_FRONTEND=noninteractive sh -c "$line" >>"$log" 2>&1 </dev/null ||
        give_up "that failed; its output is in $log"
}

user=lab
if [ "${1:-}" = --root ]; then
    user=root
    shift
fi
[ $# -ge 3 ] || give_up "usage: debian.sh [--root] RELEASE FOLDER COMMAND [ARGUMENT...]" 2
[ "$(id -u)" = 0 ] || give_up "only root may make a root and enter it" 2
release=$1
folder=$(realpath -m "$2")
shift 2
mirror=${DEBIAN_MIRROR:-$(host_mirror)}
mirror=${mirror:-$DEFAULT_MIRROR}

if [ ! -e "$folder" ]; then
    make_root
elif [ ! -d "$folder/home/lab" ]; then
    give_up "$folder is there and was not made by this program" 2
fi
# A host's name server may have changed since.
cp /etc/resolv.conf "$folder/etc/resolv.conf"
bring_checkout
if [ ! -e "$folder/etc/twinboot" ]; then
    install_packages
    touch "$folder/etc/twinboot"
fi
as "$user" "$@"
