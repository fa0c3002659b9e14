#!/bin/sh
# The guest agent of wall mode, in the root that exact guests have (guests/enter.sh).
#
# The phases, and everything that is read before and after them, are agent.sh's, which
# is /init here too.  What differs is around them: the texts are in a folder, nothing
# is stopped or kept, no vCPU is kept busy, and the results leave through a virtio port
# of their own: through a folder that the guest may write to, a broken kernel would
# write to the host.
set -u
TWINBOOT_FUNCTIONS_ONLY=1
. /init
FW_CFG=/twinboot
PORT_NAME=twinboot.result

# The device of our port, by sysfs: there is no udev in here.
port() {
    for entry in /sys/class/virtio-ports/*; do
        if [ "$(cat "$entry/name")" = "$PORT_NAME" ]; then
            echo "/dev/${entry##*/}"
        fi
    done
}

# virtme-ng's init powers off when we leave.
send() {
    cd "$OUT" && dmesg >dmesg && cat /proc/sys/kernel/tainted >tainted
    tar -cf - . | gzip -1 >/tmp/payload
    set -- $(wc -c </tmp/payload) $(sha256sum /tmp/payload)
    { echo "TWINBOOT1 $1 $2"; cat /tmp/payload; } >"$(port)"
    say "done"
    exit 0
}

# The kernel seeds itself: its clock is the host's.
add_entropy() { :; }

# No two boots are alike, on one kernel or on two.
perturb() { :; }

mounts
prepare
say "ready"
all_phases
send
