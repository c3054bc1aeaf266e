#!/usr/bin/env bash
# Usage: two_hosts_test.sh LYCEUM SOURCE_DIR. Trains on two hosts that share only a TCP network (namespaces of this machine).
# The run equals one on a single host bit for bit, and ends within seconds if a host dies or its cable is cut.
# The test starts again in a new network namespace, in which it connects the hosts; unless root, also in a user namespace.
if [[ -z ${LYCEUM_TEST_NET:-} ]]; then
  user=()
  ((EUID == 0)) || user=(--user --map-root-user)
  LYCEUM_TEST_NET=1 exec unshare "${user[@]}" --net bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh" "$@"
stop_hosts() { for host in h1 h2; do kill -KILL "$(cat "$work/$host.pid")" 2>/dev/null || true; done; }
trap 'stop_hosts; stop_job; rm -rf "$work"' EXIT

printf '127.0.0.1 localhost\n10.77.0.1 h1\n10.77.0.2 h2\n' >"$work/hosts"
# host NAME [OPTIONS OF unshare]: makes namespaces that exist as long as the process in $work/NAME.pid.
host() {
  local name=$1
  shift
  setsid unshare --net --uts --ipc --mount --propagation private --fork --kill-child "$@" sh -c "
    hostname $name
    mount --bind $work/hosts /etc/hosts
    mount -t tmpfs tmpfs /dev/shm
    ip link set lo up
    touch $work/$name.ready
    exec sleep infinity" </dev/null >/dev/null 2>&1 &
  local parent=$!
  disown
  wait_for 10 test -e "$work/$name.ready" || fail "cannot create namespaces for $name: is unshare allowed here?"
  pgrep -P "$parent" >"$work/$name.pid"
}
# h2 has a process namespace, so that all its processes can be killed together. h1 has none: it must see the process of h2 to
# enter it, in the place of ssh.
two_hosts() {
  rm -f "$work"/h?.ready
  host h1
  host h2 --pid --mount-proc
  ip link add lyceum-h1 type veth peer name lyceum-h2
  for host in h1 h2; do
    ip link set lyceum-$host netns "$(cat "$work/$host.pid")" name eth0
    "$work/on" $host "ip addr add 10.77.0.${host#h}/24 dev eth0 && ip link set eth0 up"
  done
}
cat >"$work/on" <<END
#!/bin/sh
# on HOST COMMAND: in the place of ssh
host=\$1 pid=\$(cat "$work/\$1.pid") processes=
shift
[ "\$host" = h1 ] || processes=--pid
exec nsenter -t "\$pid" --net --uts --ipc --mount \$processes --wd="\$PWD" sh -c "\$*"
END
chmod +x "$work/on"

make_data
know_peaks h1 h2
tiny+=(--run.steps=20 --checkpoint.every=0 --parallel.expert=2)
# on_hosts H1:SLOTS,… : runs lyceum from h1. mpirun ends if a host does not answer for about ten seconds.
on_hosts() {
  local hosts=$1
  shift
  # shellcheck disable=SC2016
  "$work/on" h1 "exec mpirun --mca plm rsh --mca plm_rsh_agent '$work/on' --mca oob_tcp_keepalive_time 5 \
    --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3 --host $hosts $lyceum $*"
}

two_hosts
for ranks in 2 4; do
  each=$((ranks / 2))
  expect 0 on_hosts h1:$ranks "${tiny[@]}" "--run.dir=$work/one-$ranks"
  expect 0 on_hosts h1:$each,h2:$each "${tiny[@]}" "--run.dir=$work/two-$ranks"
  says out "^ +$((ranks - 1)) +h2 +$((each - 1)) "
  diff <(steps "$work/one-$ranks/metrics.jsonl") <(steps "$work/two-$ranks/metrics.jsonl") >"$work/out" ||
    fail "$ranks ranks on two hosts have other losses than on one"
  equal "steps on $ranks ranks" "$(steps "$work/two-$ranks/metrics.jsonl" | wc -l)" 20
  same_weights "$work"/{one,two}-$ranks/checkpoints/step-00000020
done

# Four expert ranks on two hosts: tokens travel in two steps. One host does the same if it is declared as two.
expect 0 on_hosts h1:2,h2:2 "${tiny[@]}" --parallel.expert=4 "--run.dir=$work/by-hosts"
says out 'ep4 on 2 hosts'
expect 0 on_hosts h1:4 "${tiny[@]}" --parallel.expert=4 --parallel.host_ranks=2 "--run.dir=$work/as-hosts"
diff <(steps "$work/by-hosts/metrics.jsonl") <(steps "$work/as-hosts/metrics.jsonl") >"$work/out" ||
  fail "two hosts have other losses than one that counts as two"
same_weights "$work"/{by-hosts,as-hosts}/checkpoints/step-00000020

# --- an error of all ranks is printed once
expect 2 on_hosts h1:2,h2:2 "${tiny[@]}" --moe.top_k=99 "--run.dir=$work/refused"
equal "lines of ours" "$(grep -c '^lyceum train: ' "$work/err")" 1
says err "^lyceum train: rank 0 on h1: moe.top_k = 99 is more than moe.experts = 8$"

# --- a host dies; a cable is cut
training() { [[ -s $1/metrics.jsonl ]]; }
gone() { ! kill -0 "$job" 2>/dev/null; }
for accident in killed cut; do
  on_hosts h1:1,h2:1 "${tiny[@]}" --run.steps=1000000 "--run.dir=$work/$accident" >"$work/out" 2>"$work/err" &
  job=$!
  wait_for 30 training "$work/$accident" || fail "no step within 30 seconds"
  if [[ $accident == killed ]]; then
    kill -KILL "$(cat "$work/h2.pid")"
  else
    "$work/on" h2 "ip link set eth0 down"
  fi
  wait_for 30 gone || fail "the job still runs 30 seconds after h2 was $accident"
  finish
  ((code != 0)) || fail "exit code 0 after h2 was $accident"
  [[ $accident == cut ]] || { stop_hosts; two_hosts; }
done
