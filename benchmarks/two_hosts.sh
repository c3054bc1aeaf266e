#!/usr/bin/env bash
# Usage: two_hosts.sh [--rate RATE] [--delay TIME] RANKS PROGRAM [ARGUMENTS]: runs an MPI program on two hosts with half of
# the ranks each. The hosts are network namespaces of this machine; they share no memory and are linked by a cable of RATE in
# each direction (as for tc, such as 1gbit). A delay needs the kernel's netem. Needs permission to create namespaces.
set -euo pipefail
rate=1gbit delay=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --rate) rate=$2 ;;
    --delay) delay=$2 ;;
    *) echo "two_hosts.sh: no such option: $1" >&2 && exit 2 ;;
  esac
  shift 2
done
(($# >= 2)) || { sed -n '2,4s/^# //p' "$0" >&2 && exit 2; }
if [[ -z ${TWO_HOSTS_NET:-} ]]; then
  options=(--rate "$rate")
  [[ -z $delay ]] || options+=(--delay "$delay")
  TWO_HOSTS_NET=1 exec unshare --net bash "$0" "${options[@]}" "$@"
fi
. "$(dirname "$0")/../scripts/mpi-env.sh"
ranks=$1
shift
work=$(mktemp -d)
trap 'kill -KILL $(cat "$work"/h?.pid) 2>/dev/null; rm -rf "$work"' EXIT

printf '127.0.0.1 localhost\n10.77.0.1 h1\n10.77.0.2 h2\n' >"$work/hosts"
cat >"$work/on" <<END
#!/bin/sh
# on HOST COMMAND: replaces ssh
pid=\$(cat "$work/\$1.pid")
shift
exec nsenter -t "\$pid" --net --uts --ipc --mount --wd="\$PWD" sh -c "\$*"
END
chmod +x "$work/on"
for host in h1 h2; do
  unshare --net --uts --ipc --mount --propagation private sh -c "
    hostname $host
    mount --bind $work/hosts /etc/hosts
    mount -t tmpfs tmpfs /dev/shm
    ip link set lo up
    echo \$\$ >$work/$host.pid
    exec sleep infinity" </dev/null >/dev/null 2>&1 &
  disown
  until [[ -s $work/$host.pid ]]; do sleep 0.1; done
done
ip link add two-hosts-h1 type veth peer name two-hosts-h2
for host in h1 h2; do
  ip link set two-hosts-$host netns "$(cat "$work/$host.pid")" name eth0
  if [[ -n $delay ]]; then
    limit="netem delay $delay rate $rate limit 100000"
  else
    limit="tbf rate $rate burst 128kb latency 400ms"
  fi
  "$work/on" $host "ip addr add 10.77.0.${host#h}/24 dev eth0 && ip link set eth0 up && tc qdisc add dev eth0 root $limit"
done
each=$((ranks / 2))
"$work/on" h1 "exec mpirun --mca plm rsh --mca plm_rsh_agent '$work/on' --host h1:$each,h2:$each $*"
