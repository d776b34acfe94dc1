# A verbs program over the kernel's siw (siw_peer.c) and provider soft on the host: misdeeds, deaths, forms of start-up.
# usage: siw_peer.sh CRC-PORT PLAIN-PORT OWN-PORT CONNECTIONS
. /tests/report.sh
. /tests/siw.inc
crc=$1 plain=$2 own=$3 connections=$4
misdeeds="write-key read-key write-bounds read-bounds write-right read-right send-long send-none"
parameters=/sys/module/siw/parameters

ask() {
  siw_peer ask "$HOST" "$@"
}

# Whoever is killed by itself ends with 128 + 9.
dies() {
  ask "$crc" "$1"
  [ $? = 137 ]
}

# siw prints what it was told, but takes the first octet of RFC 5040 the other way round: layer and type.
told() {
  local layer type code
  dmesg -C
  ask "$crc" "i-$1" || return 1
  case $1 in
  write-key | write-right) layer=1 type=1 code=0 ;;
  read-key) layer=1 type=0 code=0 ;;
  write-bounds) layer=1 type=1 code=1 ;;
  read-bounds) layer=1 type=0 code=1 ;;
  read-right) layer=1 type=0 code=2 ;;
  send-long) layer=2 type=1 code=5 ;;
  send-none) layer=2 type=1 code=2 ;;
  esac
  dmesg | grep -q "got TERMINATE. layer $layer, type $type, code $code\$"
}

connected_only() {
  bash -c "exec 3<>/dev/tcp/$HOST/$crc; kill -KILL \$\$"
  ask "$crc" hello
}

no_queue_pairs() {
  local left
  for ((n = 0; n < 50; n++)); do
    left=$(rdma resource show qp link siw0 | grep -vc 'type GSI')
    [ "$left" = 0 ] && return 0
    usleep 100000
  done
  rdma resource show qp
  return 1
}

set_parameter() {
  echo "$2" > "$parameters/$1"
}

check "siw asks, CRC: Send, Write, Read from nothing to many frames, both ways" ask "$crc" sound
check "the same without CRC" ask "$plain" sound
set_parameter mpa_version 1
check "the same, MPA revision 1, CRC" ask "$crc" sound
check "the same, MPA revision 1, no CRC" ask "$plain" sound
set_parameter mpa_version 2
set_parameter mpa_crc_required 1
check "the same, CRC because siw asks for it" ask "$plain" sound
set_parameter mpa_crc_required 0
set_parameter peer_to_peer 1
check "the same, peer to peer" ask "$crc" sound
set_parameter peer_to_peer 0
for misdeed in $misdeeds; do
  check "siw asks, $misdeed of siw's is answered with a Terminate that siw understands" told "$misdeed"
  check "siw asks, $misdeed of ours" ask "$crc" "r-$misdeed"
done
check "siw asks and dies with TCP connected" connected_only
for stage in asked replied idle g-send g-write g-read h-send h-write h-read; do
  check "siw asks and dies: $stage" dies "die-$stage"
done
check "siw asks, $connections connections by one program" ask "$crc" hello "$connections"
ask "$plain" enough
ask "$crc" enough

# The host says when to start anew, so that it never dials while nobody listens.
for ((n = 0; ; n++)); do
  : > /tmp/siw_peer.out
  siw_peer answer "$own" > /tmp/siw_peer.out 2> /tmp/siw_peer.err &
  until grep -q listening /tmp/siw_peer.out; do usleep 20000; done
  echo "siw answers $n"
  wait $! 2> /dev/null
  cat /tmp/siw_peer.err
  await "life-$n"
  [ "$(cat "/job/life-$n")" = again ] || break
done
check "no queue pair of siw's is left" no_queue_pairs
check "the kernel complains of nothing" eval '! dmesg | grep -E "BUG|WARNING|Oops"'
exit 0
