# The gate's job: the guest agent (agent.sh) reads it in place of a job's assignments, at
# the same point, and it uses the agent's functions.
#
# Every read is compared with what was written: fio puts a checksum and the offset into
# each 4 KiB block.  The layout goes past the page cache, so that what is read back
# through it did not come from it.
#
# Inputs, before this text: MKFS FILES FILE_MIB (of the preparation), JOBS SEED [SYSCTL],
# SHARE (MiB each job reads), LIMIT LEFT_MIB (of the phases), IMAGE_MIB OWN_LIMIT OWN_MKFS
# (of the gate's own steps), and per phase N of the cases:
# NAME_N DROP_N THP_N READAHEAD_N FIO_N WRITES_N
IMAGE=/mnt/test.img
EACH="--verify_interval=4096 --verify_fatal=1"
CONTENT="--verify=crc32c $EACH"
# What a phase writes first has another sum than what was there.
OTHER="--verify=crc64 $EACH"
TREE_NODES=/sys/kernel/slab/radix_tree_node
AHEAD=/sys/block/ram0/queue/read_ahead_kb
HELD=/run/held
# In tmpfs there is no way past the page cache.
DIRECT=0
[ -z "$MKFS" ] || DIRECT=1

# step NAME DROP THP FIO_ARGUMENTS: one fio in the cgroup, or another command, which does not
# begin with an option.  One that fails is a finding
# and not the end: what comes after it says more.
step() {
    say "check $1"
    mkdir "$OUT/$1"
    if [ "$2" = 1 ]; then
        sync
        echo 3 >/proc/sys/vm/drop_caches
    fi
    echo "$3" >/sys/kernel/mm/transparent_hugepage/enabled || fail "$1: THP state $3"
    case "$4" in
    -*) set -- "$1" "$2" "$3" "fio $4 --output-format=json --output=fio.json" ;;
    esac
    (
        echo 0 >"$CGROUP/cgroup.procs" || exit 97
        cd "$OUT/$1" || exit 98
        eval "exec $4"
    ) >"$OUT/$1/fio.out" 2>&1
    echo $? >"$OUT/$1/status"
    cp "$CGROUP/memory.stat" "$CGROUP/memory.events" "$OUT/$1"
}

# fill NAME: write all files, past the page cache and outside the cgroup.
fill() {
    say "check $1"
    mkdir "$OUT/$1"
    (
        cd "$OUT/$1" || exit 98
        for file in $FILES; do
            eval "fio --name=fill --filename=$file --rw=write --bs=1M --size=${FILE_MIB}M \
                --direct=$DIRECT --randseed=$SEED --do_verify=0 $CONTENT \
                --output-format=json --output=fio.json" || exit
        done
    ) >"$OUT/$1/fio.out" 2>&1
    echo $? >"$OUT/$1/status"
}

# count NAME: what is in use with nothing in the caches.  Per-CPU slabs count as used
# until they are given back, and nodes of trees are freed after a grace period.
count() {
    mkdir "$OUT/$1"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sleep 0.2
    echo 1 >"$TREE_NODES/shrink"
    cp /proc/vmstat /proc/slabinfo "$OUT/$1"
    cp "$CGROUP/memory.stat" "$CGROUP/memory.current" "$OUT/$1"
}

# Take memory until LEFT_MIB are free, of all nodes alike; give it back.
hold() {
    say "check hold"
    options=size=100%
    [ ! -d "$NODES/node1" ] || options=$options,mpol=interleave
    mkdir "$HELD" && mount -t tmpfs -o "$options" held "$HELD" || fail "held: mount"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    while read -r name kib _; do
        [ "$name" != MemFree: ] || break
    done </proc/meminfo
    dd if=/dev/zero of="$HELD/memory" bs=1M count=$((kib / 1024 - LEFT_MIB)) 2>"$OUT/held.log" ||
        fail "held: $(head -n 1 "$OUT/held.log")"
}

let_go() {
    umount "$HELD" || fail "held: umount"
}

# work NAME DROP THP READAHEAD_KIB FIO_ARGUMENTS WRITES: one phase of a case.
work() {
    [ "$4" = 0 ] && set -- "$1" "$2" "$3" "$ahead" "$5" "$6"
    echo "$4" >"$AHEAD" || fail "$1: readahead $4 KiB"
    if [ "$6" = no ]; then
        step "$1" "$2" "$3" "$5"
        return
    fi
    step "$1" "$2" "$3" "$5 $OTHER --do_verify=0"
    step "$1-back" 1 "$3" "$5 $OTHER --verify_only=1"
    if [ "$6" = all ]; then
        [ "$n" = "$PHASES" ] || fill "fill-$n"
        return
    fi
    step "$1-again" 0 "$3" "$5 $CONTENT --do_verify=0"
    step "$1-whole" 1 "$3" "--name=check --filename=$(echo "$FILES" | tr ' ' :) \
        --ioengine=psync --rw=read --bs=4k $CONTENT"
}

# Whether the gate's own steps have another file than the phases.
another_file() {
    [ "$FILES $FILE_MIB" != "$IMAGE $IMAGE_MIB" ]
}

# Have every page of the device in its tree, whose nodes are counted as all others are.
whole_device() {
    if [ -n "$MKFS" ]; then
        dd if=/dev/zero of=/mnt/filler bs=1M oflag=direct 2>/dev/null
        rm /mnt/filler
    else
        dd if=/dev/zero of=/dev/ram0 bs=1M 2>/dev/null
    fi
}

# The file of the gate's own steps, on a device, which it needs all of: what programs left is gone.
own_file() {
    # shellcheck disable=SC2086 # one word a file
    [ -z "$FILES" ] || rm $FILES
    if [ -z "$MKFS" ] || [ -z "$FILES" ]; then
        umount /mnt || fail "umount: $(cat /proc/mounts)"
        format "$OWN_MKFS"
        mount -o noatime /dev/ram0 /mnt || fail "mount: $(cat /proc/mounts)"
        DIRECT=1
    fi
    FILES=$IMAGE
    FILE_MIB=$IMAGE_MIB
    fill fill-own
}

READ="--name=check --filename=$IMAGE --buffered=1 --ioengine=mmap --rw=randread --bs=4k \
    --randrepeat=0 --randseed=$SEED --numjobs=$JOBS --group_reporting $CONTENT"
WHOLE="--name=check --filename=$IMAGE --ioengine=psync --rw=read --bs=4k $CONTENT"

echo 0 >/proc/sys/kernel/printk_ratelimit
settings
fill fill
! another_file || whole_device
count before
echo "$LIMIT" >"$CGROUP/memory.max" || fail "memory.max $LIMIT"
read -r ahead <"$AHEAD"
[ "$LEFT_MIB" = 0 ] || hold
n=1
while [ "$n" -le "$PHASES" ]; do
    eval "work \"\$NAME_$n\" \"\$DROP_$n\" \"\$THP_$n\" \"\$READAHEAD_$n\" \"\$FIO_$n\" \
        \"\$WRITES_$n\""
    n=$((n + 1))
done
[ "$LEFT_MIB" = 0 ] || let_go
echo "$ahead" >"$AHEAD"
! another_file || own_file
echo "$OWN_LIMIT" >"$CGROUP/memory.max" || fail "memory.max $OWN_LIMIT"
# Huge folios under reclaim, then small ones where their shadows are, which splits them; each twice, so
# that what the first round left behind is met.  Fio would drop the file, and its shadows, as it begins.
READ="$READ --invalidate=0"
step huge 1 always "$READ --thp=1 --io_size=${SHARE}M"
step small 0 never "$READ --io_size=${SHARE}M"
step huge-again 0 always "$READ --thp=1 --io_size=${SHARE}M"
step small-again 0 never "$READ --io_size=${SHARE}M"
step write 0 always "--name=check --filename=$IMAGE --buffered=1 --ioengine=psync --rw=randwrite \
    --bs=4k --offset=0 --size=$((FILE_MIB / 4))M --randseed=$SEED --end_fsync=1 $CONTENT"
# The new end is within a huge folio, which is split for it.
truncate -s $((FILE_MIB * 1048576 - 1060864)) "$IMAGE" || fail "truncate"
step whole 1 always "$WHOLE --buffered=1"
step device 1 never "$WHOLE --direct=1"
rm "$IMAGE"
umount /mnt || fail "umount: $(cat /proc/mounts)"
count after
cat /proc/lockdep_stats >"$OUT/lockdep_stats" 2>/dev/null
send
