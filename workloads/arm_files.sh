# Files that the arm sets, sent behind its job: a line each, before anything else is done.
case "$ARM_FILES" in
*"$CGROUP/cpuset."*)
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control || fail "setting: cgroup: no cpusets" ;;
esac
while IFS='=' read -r file value; do
    [ -e "$file" ] || fail "setting: this kernel has no $file"
    echo "$value" >"$file" || fail "setting: $file: $value is refused"
    echo "$file=$(tr '\n' ' ' <"$file")" >>"$OUT/settings"
done <<EOF
$ARM_FILES
EOF
