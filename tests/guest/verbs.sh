# Provider verbs over a software RDMA device of the kernel: what every provider does, then a server and its clients.
# usage: verbs.sh rxe|siw short|long
. /tests/report.sh
device=$1 form=$2
address=10.0.2.15 smb=4450 rdma=5445 user=user password=secret

case $device in
rxe)
  modprobe -a rdma_rxe rdma_ucm rdma_cm ib_uverbs
  rdma link add rxe0 type rxe netdev eth0
  ;;
siw) . /tests/siw.inc ;;
esac
# What this kernel's device does against the rules; each gap is shown to be there. How it commits persistent memory.
declare -A gaps=([siw]=serves-reads-without-right) flush=([rxe]=native [siw]=message)
export LANDFAST_RDMA_CARD=eth0
export LANDFAST_RDMA_PROVIDER=verbs LANDFAST_RDMA_ADDR=$address LANDFAST_RDMA_GAPS=${gaps[$device]} LANDFAST_RDMA_FLUSH=${flush[$device]}

is_active() {
  rdma link show | grep "$device.*ACTIVE"
}

# each_test ABOUT PROGRAM FILTER...: one check for each test of a Rust test program.
each_test() {
  local line name status about=$1
  shift
  timeout 300 "$@" --test-threads 1 > /tmp/tests.log 2>&1
  status=$?
  while read -r line; do
    [[ $line =~ ^test\ ([a-z0-9_]+::)*([a-z0-9_]+)\ \.\.\.\ ([a-zA-Z]+) ]] || continue
    name=${BASH_REMATCH[2]}
    case ${BASH_REMATCH[3]} in
    ok) echo "ok $about: $name" ;;
    ignored) echo "gap $about: $name: ignored" ;;
    *) echo "FAIL $about: $name: $(grep -A 4 "::$name' .*panicked" /tmp/tests.log | cut -c 1-300 | tr '\n' ' ')" ;;
    esac
  done < /tmp/tests.log
  [ $status = 0 ] || echo "FAIL $about: $1: status $status, $(tail -n 3 /tmp/tests.log | tr '\n' ' ')"
}

# A whole device of persistent memory.
make_devdax() {
  patiently [ -e /sys/bus/nd/devices/namespace0.0 ]
  ndctl create-namespace -f -e namespace0.0 --mode=devdax --map=mem && patiently [ -c "$LANDFAST_RDMA_DAX" ]
}

# serve PROVIDER DIRECTORY OPTION...: a server whose RDMA listener is the device's, or of soft at the same address.
serve() {
  local provider=$1 directory=$2
  shift 2
  mkdir -p "$directory" && : > /tmp/serve.log
  RUST_LOG=info,server::push=debug,server::dispatch::push=debug,remote::host=debug landfast serve --share "data=$directory" --user $user:$password --listen 127.0.0.1:$smb --rdma-listen $address:$rdma \
    --rdma-provider "$provider" --rdma-threads 2 "$@" > /tmp/serve.log 2>&1 &
  patiently grep -q "^listening" /tmp/serve.log || { cat /tmp/serve.log; return 1; }
}

is_stopped() {
  ! pidof landfast > /dev/null
}

stop() {
  kill "$(pidof landfast)" || return 1
  patiently is_stopped || { tail -n 3 /tmp/serve.log; return 1; }
}

# bench PROVIDER MODE EXPECTED...: measures nothing here; each expected word must be in the report. With existing=--existing
# it writes to files that are there.
bench() {
  local provider=$1 mode=$2 word
  shift 2
  timeout 200 landfast bench "smb://$user:$password@127.0.0.1:$smb/data" --rdma-provider "$provider" --mode "$mode" -d 1 -w 50 \
    -t "${threads:-2}" -o 4 --file-size 1M ${existing:-} > /tmp/bench.log 2>&1 || { tail -n 3 /tmp/bench.log; return 1; }
  for word in "$@"; do grep -q "$word" /tmp/bench.log || { echo "no $word:"; tail -n 3 /tmp/bench.log; return 1; }; done
  grep -E "^ *(push|smb-direct):|^IOPS" /tmp/bench.log
}

# The bytes of a file that was put, fetched again, with the server's RDMA listener in use.
round_trip() {
  head -c 3000001 /dev/urandom > /tmp/original
  landfast put /tmp/original "smb://$user:$password@127.0.0.1:$smb/data/copy" > /dev/null &&
    landfast get "smb://$user:$password@127.0.0.1:$smb/data/copy" /tmp/fetched > /dev/null && cmp /tmp/original /tmp/fetched
}

# An address of this machine that no RDMA device has.
refuses_other_addresses() {
  ip link add dummy0 type dummy && ip address add 10.98.0.1/24 dev dummy0 && ip link set dummy0 up || return 1
  timeout 60 landfast serve /tmp --user $user:$password --listen 127.0.0.1:0 --rdma-provider verbs --rdma-listen 10.98.0.1:0 \
    > /tmp/refused.log 2>&1 && return 1
  cat /tmp/refused.log
  grep -q "no RDMA device has the address 10.98.0.1" /tmp/refused.log
}

# A client that dies in the middle: what it held is given back, and others are served.
outlives_a_client() {
  timeout -s KILL 2 landfast bench "smb://$user:$password@127.0.0.1:$smb/data" --rdma-provider verbs --mode push -d 60 -w 50 -t 2 -o 4 \
    --file-size 1M > /tmp/killed.log 2>&1
  # Nobody removes what a killed bench has made.
  rm -f /tmp/share/landfast-bench.dat.*
  pidof landfast > /dev/null && bench verbs push "push by provider verbs"
}

# Once its card was off, rxe connects nobody.
renew() {
  rdma link delete "${device}0" && rdma link add "${device}0" type "$device" netdev eth0 && patiently is_active &&
    ping -c 1 -W 10 "$HOST" > /dev/null
}

# rdma link delete waits for those who have the device open; they hear of it before.
device_goes() {
  local client
  RUST_LOG=client=debug,remote=debug landfast bench "smb://$user:$password@127.0.0.1:$smb/data" --rdma-provider verbs --mode push -d 300 -w 50 -t 1 \
    -o 4 --file-size 1M > /tmp/bench.log 2>&1 &
  client=$!
  patiently grep -q "region mapped" /tmp/serve.log
  rdma link delete "${device}0" > /dev/null 2>&1 < /dev/null &
  patiently grep -q "leaves push mode" /tmp/bench.log
  patiently grep -q "ended .*push connection" /tmp/serve.log
  kill $client
  wait $client
  # Whoever hears of it first says goodbye to the other, which may hear of that first.
  cat /tmp/bench.log /tmp/serve.log | grep -E "HostAdapter\(Removed\)|the adapter failed: Removed" && grep "the device of a listener is being removed" /tmp/serve.log ||
    { tail -n 3 /tmp/bench.log /tmp/serve.log; return 1; }
}

has_no_device() {
  ! rdma link show | grep "$device"
}

echo "kernel $(uname -r), $(rdma link show | grep "$device" | head -n 1), libibverbs $(basename "$(readlink -f /usr/lib/x86_64-linux-gnu/libibverbs.so.1)")"
check "$device: the device is up" patiently is_active
modprobe -a nfit nd_pmem device_dax dax_pmem 2> /dev/null
export LANDFAST_RDMA_DAX=/dev/dax0.0
check "$device: devdax" make_devdax
ping -c 1 -W 10 "$HOST" > /dev/null
for tests in every_provider push; do each_test "$device" "/host/$tests"; done
check "$device: an address without a device is refused" refuses_other_addresses
check "$device: the server starts" serve verbs /tmp/share --emulate-persistence
check "$device: push over verbs" bench verbs push "push by provider verbs, class volatile, commit by message" "provider verbs"
tail -n 1 /tmp/bench.log
check "$device: SMB Direct over verbs" bench verbs smb-direct "over SMB Direct"
check "$device: a client is killed" outlives_a_client
check "$device: put and get" round_trip
check "$device: the server stops" stop
if [ "$device" = siw ]; then
  # A wire that both providers speak: each as client of the other.
  stories="a_region_on_tmpfs records_and"
  [ "$form" = long ] && stories="a_region_on records_and another_client a_client_that"
  export LANDFAST_RDMA_PROVIDER=soft LANDFAST_RDMA_SERVER=verbs
  each_test "soft dials verbs over siw" /host/push $stories
  export LANDFAST_RDMA_PROVIDER=verbs LANDFAST_RDMA_SERVER=soft
  each_test "verbs over siw dials soft" /host/push $stories
  unset LANDFAST_RDMA_SERVER
fi
if [ "$device $form" = "siw long" ]; then
  check "siw: a server over verbs for clients over soft" serve verbs /tmp/share --emulate-persistence
  check "siw: push, soft dials verbs" bench soft push "push by provider soft, class volatile, commit by message"
  check "siw: SMB Direct, soft dials verbs" bench soft smb-direct "over SMB Direct"
  check "siw: that server stops" stop
  check "siw: a server over soft for clients over verbs" serve soft /tmp/share --emulate-persistence
  check "siw: push, verbs dials soft" bench verbs push "push by provider verbs, class volatile, commit by message"
  check "siw: SMB Direct, verbs dials soft" bench verbs smb-direct "over SMB Direct"
  check "siw: that server stops too" stop
fi
if [ "$device" = rxe ]; then
  mkdir -p /dev/shm/device && cp -a $LANDFAST_RDMA_DAX /dev/shm/device/landfast-bench.dat.push.0
  check "rxe: a server of the devdax device" serve verbs /dev/shm/device --device data=$LANDFAST_RDMA_DAX
  threads=1 existing=--existing check "rxe: its commits are native" bench verbs push "push by provider verbs, class pmem, commit by native RDMA Flush"
  tail -n 1 /tmp/bench.log
  check "rxe: that server stops" stop
fi
each_test "$device" /host/adapter
ip link set eth0 up
check "$device: a device anew" renew
check "$device: a server whose device will go" serve verbs /tmp/share --emulate-persistence
check "$device: the device goes, its connections and its listener with it" device_goes
check "$device: that server stops, and the device is gone" eval 'stop && patiently has_no_device'
dmesg | grep -E 'BUG|WARNING|Oops' | tail -n 5
exit 0
