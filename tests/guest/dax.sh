# Our server on a DAX file system of emulated persistent memory; the host cuts the power meanwhile.
# usage: dax.sh new|again ext4|xfs SMB-PORT RDMA-PORT USER PASSWORD
. /tests/report.sh
life=$1 kind=$2 smb=$3 rdma=$4 user=$5 password=$6

# Ports of the host lead to eth0, and what our server tells its clients must be true there: 127.0.0.1.
inwards() {
  echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet
  nft add table ip landfast
  nft add chain ip landfast input '{ type nat hook prerouting priority -100; }'
  nft add rule ip landfast input iif eth0 tcp dport "{ $smb, $rdma }" dnat to 127.0.0.1
}

make_file_system() {
  case $kind in
  ext4) mkfs.ext4 -q -F -b 4096 /dev/pmem0 ;;
  xfs) mkfs.xfs -q -f -m reflink=0 /dev/pmem0 ;;
  esac
}

# By the kernel's own client: what the volume says it can do (FILE_DAX_VOLUME is 0x20000000).
says_dax() {
  local attributes
  mkdir -p /run/own
  mount -t cifs //127.0.0.1/share /run/own -o "vers=3.1.1,port=$smb,username=$user,password=$password" || return 1
  attributes=$(grep -A3 '\\share' /proc/fs/cifs/DebugData | grep -o 'Attributes: 0x[0-9a-f]*' | head -n 1)
  umount /run/own
  echo "$attributes"
  [ $((${attributes#*: } & 0x20000000)) != 0 ]
}

# The server has the file itself in its memory, by a mapping whose faults are synchronous.
maps_the_file() {
  awk '/stream.dat/ { found = 1 } found && /^VmFlags/ { print; if (/ sf( |$)/) good = 1; found = 0 } END { exit !good }' \
    "/proc/$(pidof landfast)/smaps"
}

sound() {
  case $kind in
  ext4) e2fsck -fn /dev/pmem0 ;;
  xfs) xfs_repair -n /dev/pmem0 ;;
  esac
}

modprobe -a nfit nd_pmem "$kind" cifs 2> /dev/null
for ((n = 0; n < 100; n++)); do [ -e /dev/pmem0 ] && break; usleep 50000; done
if [ "$life" = new ]; then
  echo "kernel $(uname -r)"
  check "$kind: fsdax namespace" ndctl create-namespace -f -e namespace0.0 --mode=fsdax --map=mem
  check "$kind: made" make_file_system
fi
check "$kind: mounted with dax" mount -o dax=always /dev/pmem0 /mnt
inwards
landfast -v serve --share "share=/mnt" --user "$user:$password" --listen "127.0.0.1:$smb" \
  --rdma-listen "127.0.0.1:$rdma" 2> /job/serve.log &
server=$!
for ((n = 0; n < 200; n++)); do grep -q ":$(printf %04X "$smb") .* 0A " /proc/net/tcp && break; usleep 50000; done
check "$kind: FILE_DAX_VOLUME" says_dax
echo "serving"
if [ "$life" = new ]; then
  await streaming
  check "$kind: regions are the file" maps_the_file
  echo "cut"
  sleep 1000
fi
await checked
kill $server
wait $server
umount /mnt
check "$kind: sound" sound
exit 0
