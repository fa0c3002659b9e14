#!/bin/sh
# The guest agent: process 1 of an exact guest.
#
# It prepares brd, file system, file and cgroup, stops at a point of its own
# choosing (the snapshot is taken there), reads its job, runs the phases, and
# sends everything it saw over the second serial port.  POSIX shell on busybox:
# a fork costs a guest about a virtual millisecond, so nothing here loops over
# what one `cp` can copy.
#
# Inputs, through fw_cfg, shell assignments padded with newlines:
#   opt/twinboot/prepare  MKFS MOUNT_OPTIONS FILES FILE_MIB
#   opt/twinboot/job      OBSERVE DELAY PAGES ENTRIES PHASES [SYSCTL], and per phase N:
#                         NAME_N DROP_N THP_N LIMIT_N READAHEAD_N FIO_N
set -u
PATH=/bin:/sbin:/usr/bin:/usr/sbin
export PATH
OUT=/run/twinboot
CGROUP=/sys/fs/cgroup/twinboot
FW_CFG=/sys/firmware/qemu_fw_cfg/by_name/opt/twinboot
KALLSYMS="_stext|_etext|do_syscall_64|schedule|handle_mm_fault|filemap_fault|vfs_read|memcpy"

say() { echo "twinboot: $*" >/dev/console; }

# A failed step ends the guest at once: a run that went on would measure
# something else than it says.
fail() {
    say "failed: $*"
    echo "$*" >"$OUT/failure"
    send
}

# fetch NAME: take over the assignments of one fw_cfg file.  "." of a file that is
# not there would end the shell, and so the guest, without a word.
fetch() {
    [ -r "$FW_CFG/$1/raw" ] || fail "$1: not sent"
    . "$FW_CFG/$1/raw"
}

# payload = gzip'ed tar of $OUT behind one header line with length and checksum.
send() {
    cd "$OUT" && dmesg >dmesg && cat /proc/sys/kernel/tainted >tainted
    tar -cf - . | gzip -1 >/tmp/payload
    set -- $(wc -c </tmp/payload) $(sha256sum /tmp/payload)
    stty -F /dev/ttyS1 raw -echo -echoe -echok
    { echo "TWINBOOT1 $1 $2"; cat /tmp/payload; } >/dev/ttyS1
    say "done"
    # isa-debug-exit: QEMU ends with status (16 << 1) | 1.
    printf '\020' | dd of=/dev/port bs=1 seek=1281 count=1 conv=notrunc 2>/dev/null
    poweroff -f
    while :; do sleep 1; done
}

# Keep a vCPU busy with work that anything else preempts.  With sleep=off QEMU's
# main loop moves the virtual clock forward when it finds every vCPU halted, and
# it may look before the vCPU thread has accounted its last slice: the next timer
# then fires late by that slice.  A guest that is never idle never gets there.
# guests/preload.c closes that race, too; one vCPU keeps both, because a clock that
# was never moved is a proof.  Among several vCPUs the loop would take turns of work.
never_idle() {
    [ -d /sys/devices/system/cpu/cpu1 ] && return
    chrt -i 0 sh -c 'while :; do :; done' &
}

mounts() {
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t devtmpfs devtmpfs /dev 2>/dev/null
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir -p /tmp /run "$OUT" /mnt
    mount -t tmpfs tmpfs /tmp
    mount -t tmpfs tmpfs "$OUT"
}

# Where code is, for the probe: a few of the kernel's own addresses, and those of fio
# and its libraries, which are fixed (norandmaps).
addresses() {
    grep -E " [Tt] ($KALLSYMS)$" /proc/kallsyms >"$OUT/kallsyms"
    cp /proc/modules "$OUT/modules" 2>/dev/null
    LD_TRACE_LOADED_OBJECTS=1 fio >"$OUT/maps" || fail "maps: $(head -n 1 "$OUT/maps")"
}

# The brd takes pages of the node that writes: all nodes are to have as much memory
# left.  So each piece of file $1 is written from the emptiest one, not through the cache.
NODES=/sys/devices/system/node
PIECE_MIB=4
layout_over_nodes() {
    at=0
    while [ "$at" -lt "$FILE_MIB" ]; do
        most=0
        for node in "$NODES"/node*; do
            while read -r _ _ name kib _; do
                [ "$name" != MemFree: ] || break
            done <"$node/meminfo"
            [ "$kib" -gt "$most" ] && most=$kib && emptiest=$node
        done
        piece=$((FILE_MIB - at < PIECE_MIB ? FILE_MIB - at : PIECE_MIB))
        taskset -c "$(cat "$emptiest/cpulist")" dd if=/dev/zero of="$1" bs=1M seek="$at" \
            count="$piece" oflag=direct conv=notrunc 2>"$OUT/layout.log" || return
        at=$((at + piece))
    done
}

# format COMMAND: make a file system on the brd.
format() {
    $1 /dev/ram0 >"$OUT/mkfs.log" 2>&1 ||
        fail "mkfs: $(grep -vE "^(mke2fs|Parameters parsed) " "$OUT/mkfs.log" | head -n 1)"
}

prepare() {
    add_entropy || fail "random: no seed taken"
    fetch prepare
    if [ -n "$MKFS" ]; then
        say "prepare: $MKFS"
        format "$MKFS"
        set -- /dev/ram0
    else
        say "prepare: tmpfs"
        set -- -t tmpfs tmpfs
    fi
    mount -o "$MOUNT_OPTIONS" "$@" /mnt 2>"$OUT/mount.log" ||
        fail "mount: $(tail -n 1 "$OUT/mount.log")"
    # Laid out here, outside the measured cgroup: its page cache must not be
    # charged to anybody when the workload starts.
    say "layout: $FILE_MIB MiB"
    for file in $FILES; do
        if [ -d "$NODES/node1" ]; then
            layout_over_nodes "$file"
        else
            dd if=/dev/zero of="$file" bs=1M count="$FILE_MIB" 2>"$OUT/layout.log"
        fi || fail "layout: $(head -n 1 "$OUT/layout.log")"
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo "+memory +io +cpu" >/sys/fs/cgroup/cgroup.subtree_control || fail "cgroup: controllers"
    mkdir "$CGROUP" || fail "cgroup: mkdir"
    addresses
    uname -a >"$OUT/uname"
    cat /sys/kernel/notes >"$OUT/notes"
    cat /proc/cmdline >"$OUT/cmdline"
    cat /proc/mounts >"$OUT/mounts"
}

# The write pauses the machine (QEMU runs with -action panic=pause); what the lab
# does next, taking a snapshot or going on, is not visible from here.  QEMU gives the
# first turn to CPU 0 in a restored guest and to the next CPU in one that goes on, so
# it is the last one that stops.
stop_point() {
    say "ready"
    last=$(printf %x $((1 << ($(nproc) - 1))))
    printf '\001' | taskset "$last" dd of=/dev/port bs=1 seek=1285 count=1 conv=notrunc 2>/dev/null
}

# Everything that is read before and after each phase, in two copies.
observe() {
    mkdir -p "$1/cgroup" "$1/proc" "$1/pressure"
    cp "$CGROUP"/memory.stat "$CGROUP"/memory.events "$CGROUP"/memory.peak \
        "$CGROUP"/memory.current "$CGROUP"/memory.max "$CGROUP"/memory.pressure \
        "$CGROUP"/io.stat "$CGROUP"/cpu.stat "$1/cgroup"
    cp /proc/vmstat /proc/stat /proc/meminfo /proc/diskstats /proc/uptime \
        /sys/kernel/mm/transparent_hugepage/enabled "$1/proc"
    cp /proc/pressure/* "$1/pressure"
    [ ! -d "$NODES/node1" ] || grep "" "$NODES"/online "$NODES"/node*/distance \
        "$NODES"/node*/cpulist "$NODES"/node*/meminfo "$NODES"/node*/vmstat >"$1/nodes"
}

# A wait runs from a task's contention_begin to its contention_end on the same lock;
# its stack is taken at the begin, where the unwinding delays the waiter and not the
# holder.  The sizes are what a histogram has room for, not what it takes.
TRACING=/sys/kernel/tracing
# Where wall.sh finds the host's programs.
HOST_ROOT=/twinboot/host
BEGIN='hist:keys=common_pid,lock_addr:begin=common_timestamp,kind=flags,where=common_stacktrace:size=65536'
END='hist:keys=common_pid,lock_addr:wait=common_timestamp-$begin:size=65536:onmatch(lock.contention_begin).trace(lock_wait,$kind,$wait,$where)'
WAITS='hist:keys=flags,stack.stacktrace:values=wait_ns:size=8192'

# Start the twin's observation; nothing for a measured guest.
locks_start() {
    case "$OBSERVE" in
    lock_stat)
        echo 0 >/proc/lock_stat || fail "lock_stat: this kernel has none"
        ;;
    contention)
        [ -d "$TRACING/events" ] || mount -t tracefs tracefs "$TRACING" ||
            fail "contention: this kernel has no tracefs"
        echo 'lock_wait unsigned int flags; u64 wait_ns; unsigned long[] stack' \
            >>"$TRACING/synthetic_events" || fail "contention: no synthetic events"
        echo "$BEGIN" >>"$TRACING/events/lock/contention_begin/trigger" &&
            echo "$END" >>"$TRACING/events/lock/contention_end/trigger" &&
            echo "$WAITS" >>"$TRACING/events/synthetic/lock_wait/trigger" ||
            fail "contention: $(grep -v '^$' "$TRACING/error_log" | tail -n 3)"
        ;;
    perf)
        # Of the host's root, where guests have one: virtme-ng shows it read-only.
        chroot "$HOST_ROOT" perf record -q -a -g -e cpu-clock -F 199 -o /run/twinboot.perf \
            >/tmp/perf.log 2>&1 &
        SAMPLER=$!
        # Until it samples, perf takes CPU time of its own.
        sleep 1
        kill -0 $SAMPLER || fail "perf: $(head -n 1 /tmp/perf.log)"
        ;;
    *) return ;;
    esac
    mkdir "$1"
    adjtimex >"$1/begin"
}

locks_stop() {
    [ -n "$OBSERVE" ] || return
    adjtimex >"$1/end"
    case "$OBSERVE" in
    lock_stat) cp /proc/lock_stat /proc/lockdep "$1" ;;
    perf)
        kill -INT $SAMPLER
        wait $SAMPLER
        # A sample is its process, then address and function of each frame; the idle
        # task's are left out.
        chroot "$HOST_ROOT" perf script -i /run/twinboot.perf -F pid,ip,sym 2>>/tmp/perf.log |
            awk -v RS= '$1 == 0 { next }
                { total++ }
                $3 ~ /slowpath|^osq_lock|spin_on_owner/ {
                    stack = $3
                    for (i = 5; i <= NF; i += 2) stack = stack ";" $i
                    seen[stack]++
                }
                END { print "total " total + 0; for (stack in seen) print seen[stack], stack }' \
                >"$1/perf"
        [ "$(head -n 1 "$1/perf")" != "total 0" ] || fail "perf: no samples: $(tail -n 1 /tmp/perf.log)"
        ;;
    contention)
        for event in lock/contention_begin lock/contention_end synthetic/lock_wait; do
            cat "$TRACING/events/$event/hist" >"$1/${event#*/}"
        done
        echo "!$WAITS" >>"$TRACING/events/synthetic/lock_wait/trigger" &&
            echo "!$END" >>"$TRACING/events/lock/contention_end/trigger" &&
            echo "!$BEGIN" >>"$TRACING/events/lock/contention_begin/trigger" &&
            echo '!lock_wait' >>"$TRACING/synthetic_events" ||
            fail "contention: events do not go off"
        ;;
    esac
}

# phase NAME DROP THP LIMIT_BYTES READAHEAD_KIB FIO_ARGUMENTS, of number $n
#
# `mark` is felt by the probe alone; what comes before and after is outside the phase.
phase() {
    say "phase $1"
    mkdir "$OUT/$1"
    if [ "$2" = 1 ]; then
        sync
        echo 3 >/proc/sys/vm/drop_caches
    fi
    echo "$3" >/sys/kernel/mm/transparent_hugepage/enabled || fail "$1: THP state $3"
    echo "$4" >"$CGROUP/memory.max" || fail "$1: memory.max $4"
    [ "$5" = 0 ] || echo "$5" >/sys/block/ram0/queue/read_ahead_kb || fail "$1: readahead $5 KiB"
    observe "$OUT/$1/before"
    locks_start "$OUT/$1/locks"
    (
        echo 0 >"$CGROUP/cgroup.procs" || exit 97
        cd "$OUT/$1" || exit 98
        eval "exec mark $n clock fio $6"
    ) >"$OUT/$1/fio.out" 2>&1
    status=$?
    mark 0 "$OUT/$1/clock"
    locks_stop "$OUT/$1/locks"
    echo $status >"$OUT/$1/status"
    observe "$OUT/$1/after"
}

# The arm's sysctl values, a line each; what the kernel says of them afterwards is sent.
settings() {
    [ -n "${SYSCTL:-}" ] || return
    while IFS='=' read -r name value; do
        file=/proc/sys/$(echo "$name" | tr . /)
        echo "$value" >"$file" || fail "sysctl: $name = $value is refused"
        echo "$name=$(tr '\t' ' ' <"$file")" >>"$OUT/sysctl"
    done <<EOF
$SYSCTL
EOF
}

# What a kernel's size and layout decide, all seeds of an arm have in common: when slower
# timers expire, which memory is free, how full slabs are.  So each seed draws its own.
perturb() {
    turns=0
    while [ "$turns" -lt "$DELAY" ]; do turns=$((turns + 1)); done
    dd if=/dev/zero of=/tmp/perturb bs=4k count="$PAGES" 2>/dev/null || fail "perturb: $PAGES pages"
    mkdir /tmp/entries && (cd /tmp/entries && seq "$ENTRIES" | xargs -r touch) ||
        fail "perturb: $ENTRIES entries"
}

# Every phase of the job, in order.
all_phases() {
    fetch job
    settings
    perturb
    n=1
    while [ "$n" -le "$PHASES" ]; do
        eval "phase \"\$NAME_$n\" \"\$DROP_$n\" \"\$THP_$n\" \"\$LIMIT_$n\" \"\$READAHEAD_$n\" \
            \"\$FIO_$n\""
        n=$((n + 1))
    done
}

# workloads/wall.sh reads this file for its functions.
[ -z "${TWINBOOT_FUNCTIONS_ONLY:-}" ] || return 0

mounts
never_idle
prepare
stop_point
all_phases
send
