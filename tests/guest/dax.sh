# Our server on a DAX file system or a device (devdax) of emulated persistent memory; the host cuts the
# power meanwhile.
# usage: dax.sh new|again ext4|xfs|devdax SMB-PORT RDMA-PORT USER PASSWORD
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

# In a directory of memory that forgets: the node is made after each boot, as an operator would.
names_the_device() {
  patiently [ -c /dev/dax0.0 ]
  device=/sys/dev/char/$((0x$(stat -c %t /dev/dax0.0))):$((0x$(stat -c %T /dev/dax0.0)))
  mount -t tmpfs share /mnt && cp -a /dev/dax0.0 /mnt/stream.dat && mknod /mnt/other c 1 5 && ls -l /mnt
}

# With a device that is none of persistent memory the server does not start, and says which.
refuses_other_devices() {
  timeout 60 landfast serve --share "share=/mnt" --user "$user:$password" --listen 127.0.0.1:0 --rdma-listen 127.0.0.1:0 \
    --device share=/dev/zero > /tmp/refused.log 2>&1 && return 1
  cat /tmp/refused.log
  grep -q "/dev/zero.*devdax" /tmp/refused.log
}

# By the kernel's own client: as long as the device, written and read, never cut nor removed; the node of
# a device that the operator did not list is not there.
is_a_file() {
  local file=/run/own/stream.dat options="vers=3.1.1,port=$smb,username=$user,password=$password,cache=none"
  mkdir -p /run/own
  mount -t cifs //127.0.0.1/share /run/own -o "$options" || return 1
  is_a_whole_file
  local status=$?
  umount /run/own
  return $status
}

is_a_whole_file() {
  local size
  size=$(cat "$device/size")
  [ "$(stat -c %s $file)" = "$size" ] || { stat $file; return 1; }
  head -c 3000000 /dev/urandom > /tmp/original
  # At the end, where no stream comes.
  dd if=/tmp/original of=$file bs=1M seek=$((size - 3000000)) oflag=seek_bytes conv=notrunc,fsync status=none || return 1
  tail -c 3000000 $file | cmp - /tmp/original || return 1
  dd if=/tmp/original of=$file bs=4096 seek="$size" count=1 oflag=seek_bytes conv=notrunc,fsync status=none &&
    { echo "written beyond the end"; return 1; }
  truncate -s 4096 $file && { echo "cut"; return 1; }
  rm -f $file && { echo "removed"; return 1; }
  [ "$(stat -c %s $file)" = "$size" ] && [ -c /mnt/stream.dat ] && ! cat /run/own/other
}

# What is in the server's memory is the device.
maps_the_device() {
  grep "rw-s .*/dev/dax0.0" "/proc/$(pidof landfast)/maps"
}

sound() {
  case $kind in
  ext4) e2fsck -fn /dev/pmem0 ;;
  xfs) xfs_repair -n /dev/pmem0 ;;
  esac
}

devices=()
modprobe -a nfit nd_pmem cifs 2> /dev/null
[ "$life" = new ] && echo "kernel $(uname -r)"
if [ "$kind" = devdax ]; then
  modprobe -a device_dax dax_pmem 2> /dev/null
  devices=(--device share=/dev/dax0.0)
  if [ "$life" = new ]; then
    patiently [ -e /sys/bus/nd/devices/namespace0.0 ]
    check "$kind: devdax namespace" ndctl create-namespace -f -e namespace0.0 --mode=devdax --map=mem
  fi
  # Not by way of check, whose commands set variables of their own shell.
  names_the_device > /tmp/named.log 2>&1
  check "$kind: a node in the share" grep -q stream.dat /tmp/named.log
  check "$kind: other devices are refused" refuses_other_devices
else
  modprobe "$kind"
  patiently [ -e /dev/pmem0 ]
  if [ "$life" = new ]; then
    check "$kind: fsdax namespace" ndctl create-namespace -f -e namespace0.0 --mode=fsdax --map=mem
    check "$kind: made" make_file_system
  fi
  check "$kind: mounted with dax" mount -o dax=always /dev/pmem0 /mnt
fi
inwards
landfast -v serve --share "share=/mnt" --user "$user:$password" --listen "127.0.0.1:$smb" \
  --rdma-listen "127.0.0.1:$rdma" "${devices[@]}" 2> /job/serve.log &
server=$!
patiently grep -q ":$(printf %04X "$smb") .* 0A " /proc/net/tcp
if [ "$kind" = devdax ]; then
  check "$kind: a file as long as the device" is_a_file
else
  check "$kind: FILE_DAX_VOLUME" says_dax
fi
echo "serving"
if [ "$life" = new ]; then
  await streaming
  if [ "$kind" = devdax ]; then
    check "$kind: regions are the device" maps_the_device
  else
    check "$kind: regions are the file" maps_the_file
  fi
  echo "cut"
  sleep 1000
fi
await checked
kill $server
wait $server
umount /mnt
[ "$kind" = devdax ] || check "$kind: sound" sound
exit 0
