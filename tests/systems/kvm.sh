#!/bin/sh
# Run a command of this checkout on a host with a working KVM, without having one.
#
#   tests/systems/kvm.sh RELEASE FOLDER OUT COMMAND [ARGUMENT...]
#
#   tests/systems/kvm.sh bookworm ~/bookworm out ./lab.py doctor --wall
#
# QEMU's translator emulates AMD's SVM with nested paging, so that a machine it emulates has a
# /dev/kvm that boots guests.  Numbers from there mean nothing; what works there is real.
# The machine runs Debian RELEASE: its root is made in FOLDER by debian.sh, which see, and kept
# as an image in FOLDER.img until the checkout, its environment or its packages change.
# COMMAND runs in the checkout as the user "lab".  It finds the folder OUT as /out: what is in
# OUT before is there, and what it writes there is in OUT afterwards.  Kernels of the lab's cache
# (TWINBOOT_CACHE) come along, so that none has to be built there; its console is OUT.log,
# what QEMU says OUT.qemu.  All that wall mode is tried with there: wall-on-kvm.sh.
#
# Exit status: COMMAND's; 2 usage, 3 the machine could not be made or did not come to its end.
#
# Environment: KVM_VCPUS (4, on two NUMA nodes), KVM_MEMORY_MIB (6144), KVM_TIMEOUT_S (3600);
# KVM_CMDLINE adds words to the kernel's command line, such as hugepages=512; KVM_BUILD are
# arguments of "lab.py build", called in the root for kernels that no cache has.
set -eu

here=$(cd "$(dirname "$0")/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
# What boots it: a kernel with KVM as modules, the newest cloud kernel of 6.12.
KERNELS='linux-image-6.12.*-cloud-amd64'
vcpus=${KVM_VCPUS:-4}
memory=${KVM_MEMORY_MIB:-6144}
timeout=${KVM_TIMEOUT_S:-3600}
cache=${TWINBOOT_CACHE:-$HOME/.cache/twinboot}

say() {
    echo "kvm.sh: $*" >&2
}

give_up() {
    say "$1"
    exit "${2:-3}"
}

[ $# -ge 4 ] || give_up "usage: kvm.sh RELEASE FOLDER OUT COMMAND [ARGUMENT...]" 2
release=$1
folder=$(realpath -m "$2")
out=$(realpath -m "$3")
shift 3
for tool in qemu-system-x86_64 mke2fs debugfs; do
    command -v $tool >/dev/null || give_up "$tool is not here: apt-get install qemu-system-x86 e2fsprogs"
done

# The program that the machine's kernel starts: process 1, and the last one.
guest_program() {
    cat <<'END'
#!/bin/sh
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
chmod 1777 /tmp /dev/shm
mount -t tmpfs tmpfs /run
hostname kvm-host
ip link set lo up 2>/dev/null
# The modules are chosen by hand: nothing else here wants udev.
modprobe -a kvm_amd ext4 virtio_blk
# The user's own: a test takes it away, and gives it back.
chown lab:lab /dev/kvm
chmod 600 /dev/kvm
mkdir -p /out
mount /dev/vdb /out
chown -R lab:lab /out /home/lab/.cache
echo "kvm-host: ready after $(cut -d ' ' -f 1 /proc/uptime) s"
cd /home/lab/twinboot
setpriv --reuid lab --regid lab --init-groups env -i HOME=/home/lab USER=lab TERM=dumb \
    LANG=C.UTF-8 PATH="$PATH" sh /out/.command </dev/null >/out/stdout 2>/out/stderr &
command=$!
# What it says is seen from outside while it runs.
tail -q -f /out/stdout /out/stderr --pid $command
wait $command
echo $? >/out/status
echo "kvm-host: done after $(cut -d ' ' -f 1 /proc/uptime) s, status $(cat /out/status)"
umount /out
sync
echo o >/proc/sysrq-trigger
sleep 60
END
}

newest_kernel() {
    find "$folder/boot" -name "vmlinuz-6.12.*" 2>/dev/null | sort -V | tail -n 1
}

mkdir -p "$(dirname "$folder")" || give_up "no folder can be made there: $folder"
sh "$here/tests/systems/debian.sh" "$release" "$folder" make setup >"$folder.log" 2>&1 ||
    give_up "the root cannot be made: $(tail -n 1 "$folder.log"); see $folder.log"
if [ -z "$(newest_kernel)" ]; then
    say "installing $KERNELS there"
    sh "$here/tests/systems/debian.sh" --root "$release" "$folder" sh -euc '
        apt-get -qq update
        name=$(apt-cache --names-only search "^$1\$" | cut -d " " -f 1 | sort -V | tail -n 1)
        apt-get -qq install --yes --no-install-recommends "$name" initramfs-tools kmod iproute2' \
        sh "$KERNELS" >>"$folder.log" 2>&1 || give_up "that failed; see $folder.log"
fi
kernel=$(newest_kernel)
initrd=$(echo "$kernel" | sed 's,/vmlinuz-,/initrd.img-,')
[ -r "$initrd" ] || give_up "no initramfs of $kernel"

guest_program >"$folder/usr/local/sbin/kvm-host"
chmod 755 "$folder/usr/local/sbin/kvm-host"
theirs=$folder/home/lab/.cache/twinboot
mkdir -p "$theirs"
for part in kernels digests initramfs native; do
    [ ! -d "$cache/$part" ] || cp -a --no-clobber "$cache/$part" "$theirs/"
done
chown -R "$(stat -c %u:%g "$folder/home/lab")" "$folder/home/lab/.cache"
if [ -n "${KVM_BUILD:-}" ]; then
    say "building kernels that are missing: $KVM_BUILD"
    # shellcheck disable=SC2086 # arguments are words
    sh "$here/tests/systems/debian.sh" "$release" "$folder" ./lab.py build $KVM_BUILD >>"$folder.log" 2>&1 ||
        give_up "no kernels can be built there; see $folder.log"
fi
key=$({
    git -C "$here" rev-parse HEAD
    cat "$folder/var/lib/dpkg/status" "$folder/usr/local/sbin/kvm-host"
    ls "$theirs/kernels" 2>/dev/null
} | sha256sum)
if [ "$key" != "$(cat "$folder.img.key" 2>/dev/null)" ]; then
    say "making an image of it"
    rm -f "$folder.img" "$folder.img.key"
    # Room for what a session may want, in KiB: only what is written takes any.
    size=$(($(du -sk "$folder" | cut -f 1) + 24 * 1024 * 1024))
    mke2fs -q -F -t ext4 -E root_owner=0:0 -d "$folder" "$folder.img" "${size}k" >>"$folder.log" 2>&1 ||
        give_up "no image can be made; see $folder.log"
    echo "$key" >"$folder.img.key"
fi

mkdir -p "$out"
rm -f "$out/status"
for word in "$@"; do
    printf "'%s' " "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
done >"$out/.command"
disk=$(mktemp "$out.XXXXXX")
trap 'rm -f "$disk"' EXIT
mke2fs -q -F -t ext4 -d "$out" "$disk" 2g >>"$folder.log" 2>&1 || give_up "no disk for $out"

# The processor is without what is kept in a state whose size a guest changes: the translator
# does not tell a hypervisor of it, and the guest's kernel then warns, and is tainted.
half=$((memory / 2))
status=0
timeout --foreground "$timeout" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi \
    -cpu EPYC-Rome,+svm,-xsave,-xsaves,-xsavec,-xsaveopt,-avx,-avx2,-fma,-f16c -smp "$vcpus,sockets=2" -m "$memory" \
    -object "memory-backend-ram,id=m0,size=${half}M" -numa "node,nodeid=0,cpus=0-$((vcpus / 2 - 1)),memdev=m0" \
    -object "memory-backend-ram,id=m1,size=${half}M" -numa "node,nodeid=1,cpus=$((vcpus / 2))-$((vcpus - 1)),memdev=m1" \
    -nodefaults -no-user-config -display none -no-reboot -serial "file:$out.log" \
    -drive "file=$folder.img,if=virtio,format=raw,snapshot=on" \
    -drive "file=$disk,if=virtio,format=raw,cache=unsafe" \
    -kernel "$kernel" -initrd "$initrd" \
    -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 init=/usr/local/sbin/kvm-host ${KVM_CMDLINE:-}" \
    </dev/null 2>"$out.qemu" || status=$?
[ $status -eq 0 ] || {
    tail -n 3 "$out.qemu" >&2
    say "QEMU ended with status $status (124: not done after $timeout s)"
}
debugfs -R "rdump / $out" "$disk" >>"$folder.log" 2>&1 || give_up "nothing can be read from $disk"
rm -rf "$out/lost+found" "$out/.command"
[ -r "$out/status" ] || give_up "the machine did not come to its end; its console is $out.log"
exit "$(cat "$out/status")"
