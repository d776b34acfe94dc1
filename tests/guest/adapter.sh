# Our server and client in the guest, provider verbs on rxe, on a devdax device; the host cuts the power meanwhile.
# usage: adapter.sh new|again
. /tests/report.sh
life=$1 address=10.0.2.15 smb=4450 rdma=5445 user=user password=secret
url=smb://$user:$password@127.0.0.1:$smb/share/stream.dat

make_device() {
  patiently [ -e /sys/bus/nd/devices/namespace0.0 ]
  ndctl create-namespace -f -e namespace0.0 --mode=devdax --map=mem
}

# The node is made after each boot, as an operator would.
name_the_device() {
  patiently [ -c /dev/dax0.0 ]
  mkdir -p /dev/shm/share && cp -a /dev/dax0.0 /dev/shm/share/stream.dat
}

serve() {
  landfast -v serve --share share=/dev/shm/share --user $user:$password --listen 127.0.0.1:$smb --rdma-listen $address:$rdma \
    --rdma-provider verbs --device share=/dev/dax0.0 > /tmp/serve.log 2>&1 &
  patiently grep -q "^listening" /tmp/serve.log || { cat /tmp/serve.log; return 1; }
}

modprobe -a rdma_rxe rdma_ucm rdma_cm ib_uverbs nfit nd_pmem device_dax dax_pmem 2> /dev/null
rdma link add rxe0 type rxe netdev eth0
echo "kernel $(uname -r), $(rdma link show)"
[ "$life" = new ] && check "devdax-rxe: devdax namespace" make_device
check "devdax-rxe: a node in the share" name_the_device
check "devdax-rxe: the server starts" serve
if [ "$life" = new ]; then
  commit_stream stream "$url" 1 verbs
  # The power should have been cut long before.
  tail -n 5 /tmp/serve.log
  exit 1
fi
await stream
check "devdax-rxe: all of that is there again" commit_stream check "$url" $(cat /job/stream)
exit 0
