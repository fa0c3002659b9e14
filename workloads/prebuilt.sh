#!/bin/sh
# The guest agent of a kernel that was built elsewhere: agent.sh, which is /agent.sh here.
#
# Such a kernel has the lab's devices and file systems as modules, and often no
# /dev/port.  The modules lie in /modules, their names beginning with their turn.
set -u
TWINBOOT_FUNCTIONS_ONLY=1
. /agent.sh

# With the options that the command line gives the module, as modprobe has them.
load_modules() {
    for file in /modules/*.ko; do
        [ -e "$file" ] || continue
        name=${file##*/??-}
        name=${name%.ko}
        options=
        for word in $(cat /proc/cmdline); do
            case "$word" in "$name".*) options="$options ${word#*.}" ;; esac
        done
        # shellcheck disable=SC2086 # one word an option
        insmod "$file" $options 2>"$OUT/insmod.log" ||
            fail "module $name: $(tail -n 1 "$OUT/insmod.log")"
    done
}

send() {
    cd "$OUT" && dmesg >dmesg && cat /proc/sys/kernel/tainted >tainted
    tar -cf - . | gzip -1 >/tmp/payload
    set -- $(wc -c </tmp/payload) $(sha256sum /tmp/payload)
    stty -F /dev/ttyS1 raw -echo -echoe -echok
    { echo "TWINBOOT1 $1 $2"; cat /tmp/payload; } >/dev/ttyS1
    say "done"
    outb 1281 16
    poweroff -f
    while :; do sleep 1; done
}

stop_point() {
    say "ready"
    last=$(printf %x $((1 << ($(nproc) - 1))))
    taskset "$last" outb 1285 1
}

mounts
never_idle
load_modules
[ -d "$FW_CFG" ] || fail "kernel: lacks CONFIG_FW_CFG_SYSFS: the guest reads its job through it"
prepare
stop_point
all_phases
send
