# Sent behind the assignments of a job that has programs of its own: the agent's phase(),
# with any command in the place of fio.  The agent does not hold it, because every judged
# number of every workload moves when the agent's text does.

# Before an arm's own sysctl, which so has the last word; kernels before 5.14 have no such file.
FREE_LISTS=/proc/sys/vm/percpu_pagelist_high_fraction
[ ! -e $FREE_LISTS ] || echo "$FREE_LISTS_FRACTION" >$FREE_LISTS || fail "lists of free pages"

# phase NAME DROP THP LIMIT_BYTES READAHEAD_KIB COMMAND, of number $n
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
        eval "exec mark $n clock $6"
    ) >"$OUT/$1/fio.out" 2>&1
    status=$?
    mark 0 "$OUT/$1/clock"
    locks_stop "$OUT/$1/locks"
    echo $status >"$OUT/$1/status"
    observe "$OUT/$1/after"
}
