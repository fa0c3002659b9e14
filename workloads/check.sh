# The gate's job: the guest agent (agent.sh) reads it in place of a job's assignments, at
# the same point, and it uses the agent's functions.
#
# Every read is compared with what was written: fio puts a checksum and the offset into
# each 4 KiB block.  The layout goes past the page cache, so that what is read back
# through it did not come from it.
#
# Inputs, before this text: FILE_MIB (of the preparation), JOBS SEED LIMIT [SYSCTL], SHARE
# (MiB each job reads), and per phase N of the cases: NAME_N DROP_N THP_N FIO_N WRITES_N
IMAGE=/mnt/test.img
CONTENT="--verify=crc32c --verify_interval=4096 --verify_fatal=1"
NODES=/sys/kernel/slab/radix_tree_node

# step NAME DROP THP FIO_ARGUMENTS: one fio in the cgroup.  One that fails is a finding
# and not the end: what comes after it says more.
step() {
    say "check $1"
    mkdir "$OUT/$1"
    if [ "$2" = 1 ]; then
        sync
        echo 3 >/proc/sys/vm/drop_caches
    fi
    echo "$3" >/sys/kernel/mm/transparent_hugepage/enabled || fail "$1: THP state $3"
    (
        echo 0 >"$CGROUP/cgroup.procs" || exit 97
        cd "$OUT/$1" || exit 98
        eval "exec fio $4 --output-format=json --output=fio.json"
    ) >"$OUT/$1/fio.out" 2>&1
    echo $? >"$OUT/$1/status"
    cp "$CGROUP/memory.stat" "$CGROUP/memory.events" "$OUT/$1"
}

# fill NAME: write the whole file, past the page cache and outside the cgroup.
fill() {
    say "check $1"
    mkdir "$OUT/$1"
    (
        cd "$OUT/$1" || exit 98
        eval "exec fio --name=fill --filename=$IMAGE --rw=write --bs=1M --size=${FILE_MIB}M \
            --direct=1 --randseed=$SEED --do_verify=0 $CONTENT --output-format=json --output=fio.json"
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
    echo 1 >"$NODES/shrink"
    cp /proc/vmstat /proc/slabinfo "$OUT/$1"
    cp "$CGROUP/memory.stat" "$CGROUP/memory.current" "$OUT/$1"
}

READ="--name=check --filename=$IMAGE --buffered=1 --ioengine=mmap --rw=randread --bs=4k \
    --randrepeat=0 --randseed=$SEED --numjobs=$JOBS --group_reporting $CONTENT"
WHOLE="--name=check --filename=$IMAGE --ioengine=psync --rw=read --bs=4k $CONTENT"

echo 0 >/proc/sys/kernel/printk_ratelimit
settings
fill fill
count before
echo "$LIMIT" >"$CGROUP/memory.max" || fail "memory.max $LIMIT"
n=1
while [ "$n" -le "$PHASES" ]; do
    eval "step \"\$NAME_$n\" \"\$DROP_$n\" \"\$THP_$n\" \"\$FIO_$n\""
    eval "[ \"\$WRITES_$n\" = 0 ]" || fill "fill-$n"
    n=$((n + 1))
done
# Huge folios under reclaim, then small ones where their shadows are; each twice, so that
# what the first round left behind is met.
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
