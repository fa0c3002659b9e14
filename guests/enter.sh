#!/bin/sh
# Started by virtme-ng's init, as root, on the host's own root file system: unpacks the
# root that exact guests have into memory and starts the agent in it.
#
# On the host's root fio's own text would be read through 9p inside the measured
# cgroup, charged to it, and evicted and read again under its limit.  In memory that
# nobody is charged for it is as far out of the way as in an exact guest.
set -eu
SHARE=$(dirname "$0")
ROOT=/run/twinboot-root
mkdir "$ROOT"
# A copy, which is root's and not set-user-ID: in the box of a user who is not root the system's
# files are nobody's, and what runs with the rights of its owner has none.
cp "$(command -v mount)" /run/twinboot-mount
mount() {
    /run/twinboot-mount "$@"
}
mount -t tmpfs -o size=90% tmpfs "$ROOT"
cd "$ROOT"
# By default cpio reads 512 bytes at a time, each a request to the host.
cpio --extract --quiet --io-size=262144 <"$SHARE/root.cpio"
mkdir twinboot
mkdir -p twinboot/host
# perf, where a twin samples with it, is the host's.
mount --rbind / twinboot/host
cp -r "$SHARE"/wall.sh "$SHARE"/prepare "$SHARE"/job twinboot/
exec chroot "$ROOT" /bin/busybox sh /twinboot/wall.sh
