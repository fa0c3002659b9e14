# The gate's job: sent to the guest agent (agent.sh) in place of a job's assignments and
# read by it, with those before it, at the same point.  It uses the agent's functions.
#
# Every read is compared with what was written: fio puts a checksum and the offset into
# each 4 KiB block.  The layout goes past the page cache, so that what is read back
# through it did not come from it.
#
# Inputs: FILE_MIB (of the preparation), JOBS SEED LIMIT LARGE SHARE, the path of a slab's
# sysfs folder, and per phase N of the cases: NAME_N DROP_N THP_N FIO_N
IMAGE=/mnt/test.img
CONTENT="--verify=crc32c --verify_interval=4096 --verify_fatal=1"
COUNTED=/sys/kernel/slab/radix_tree_node

# step NAME DROP THP FIO_ARGUMENTS: one fio in the cgroup; a step that fails is the
# finding, not the end.
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
        eval "exec fio $4"
    ) >"$OUT/$1/fio.out" 2>&1
    echo $? >"$OUT/$1/status"
    cp "$CGROUP/memory.stat" "$CGROUP/memory.events" "$OUT/$1"
}

# What nothing may be left of, with nothing in the caches.  Per-CPU slabs count as used
# until they are given back.
count() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    # Inodes and tree nodes are freed after a grace period.
    sleep 0.2
    for slab in radix_tree_node; do
        echo 1 >"/sys/kernel/slab/$slab/shrink"
    done
    mkdir "$OUT/$1"
    cp /proc/vmstat /proc/slabinfo /proc/meminfo "$OUT/$1"
    cp "$CGROUP/memory.stat" "$CGROUP/memory.current" "$OUT/$1"
}

READ="--name=check --filename=$IMAGE --buffered=1 --ioengine=mmap --rw=randread --bs=4k \
    --randrepeat=0 --randseed=$SEED --numjobs=$JOBS --group_reporting $CONTENT"

echo 0 >/proc/sys/kernel/printk_ratelimit
echo max >"$CGROUP/memory.max"
step fill 0 never "--name=fill --filename=$IMAGE --rw=write --bs=1M --size=${FILE_MIB}M --direct=1 \
    --randseed=$SEED --do_verify=0 $CONTENT"
count before
echo "$LIMIT" >"$CGROUP/memory.max" || fail "memory.max $LIMIT"
n=1
while [ "$n" -le "$PHASES" ]; do
    eval "step \"\$NAME_$n\" \"\$DROP_$n\" \"\$THP_$n\" \"\$FIO_$n $CONTENT\""
    n=$((n + 1))
done
step huge 1 always "$READ --thp=1 --io_size=${SHARE}M"
step split 0 never "$READ --io_size=${SHARE}M"
step write 0 always "--name=check --filename=$IMAGE --buffered=1 --ioengine=psync --rw=randwrite \
    --bs=4k --offset=0 --size=$((FILE_MIB / 2))M --randseed=$SEED --end_fsync=1 $CONTENT"
# Ends within a huge folio: what is left of it is split.
step huge-again 0 always "$READ --thp=1 --io_size=${SHARE}M"
truncate -s $((FILE_MIB * 1048576 - 1060864)) "$IMAGE" || fail "truncate"
step whole 1 always "--name=check --filename=$IMAGE --buffered=1 --ioengine=psync --rw=read --bs=4k $CONTENT"
step device 1 never "--name=check --filename=$IMAGE --direct=1 --ioengine=psync --rw=read --bs=4k $CONTENT"
rm "$IMAGE"
umount /mnt || fail "umount: $(cat /proc/mounts)"
count after
cat /proc/lockdep_stats >"$OUT/lockdep_stats"
send
