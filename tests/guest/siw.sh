# rping, a program written for verbs, over the kernel's siw against the soft provider on the host; both roles.
# usage: siw.sh CRC-PORT PLAIN-PORT OWN-PORT SIZES CONNECTIONS KILLS
. /tests/report.sh
. /tests/siw.inc
crc=$1 plain=$2 own=$3 sizes=$4 connections=$5 kills=$6

ask() {
  timeout 60 rping -c -a "$HOST" "$@" -V
}

many() {
  local n
  for ((n = 0; n < connections; n++)); do ask -p "$crc" -C 1 || return 1; done
}

connected() {
  rdma resource show qp link siw0 | grep -q 'type RC.*state RTS'
}

# Each a while after it has begun to talk.
killed() {
  local n
  for ((n = 0; n < kills; n++)); do
    ask -p "$crc" -C 1000000 > /dev/null &
    patiently connected
    usleep $((n * 217000))
    # Not timeout(1), which would end without a word to rping.
    kill -KILL "$(pidof rping)" || { rdma resource show qp; return 1; }
    wait $! 2> /dev/null
  done
  return 0
}

echo "kernel $(uname -r), $(rdma link show | head -n 1)"
for size in $sizes; do
  check "siw asks, CRC, $size bytes" ask -p "$crc" -C 10 -S "$size"
  check "siw asks, no CRC, $size bytes" ask -p "$plain" -C 10 -S "$size"
done
check "siw asks, $connections connections one after the other" many
check "siw asks and is killed $kills times" killed
check "siw asks after that" ask -p "$crc" -C 10

rping -s -P -a 10.0.2.15 -p "$own" -S 65535 > /tmp/rping.log 2>&1 &
listens() {
  rdma resource show cm_id | grep -q LISTEN
}
patiently listens
echo "siw answers"
await asked
check "rping lives" kill -0 $!
kill -KILL $!
wait $! 2> /dev/null
dmesg | grep -E 'siw: [^lm]|BUG|WARNING' | tail -n 5
exit 0
