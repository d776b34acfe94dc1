# The kernel's SMB client against a server of the host's: files both ways, in each protection.
# usage: cifs.sh tcp|rdma PORT SHARE USER PASSWORD MODE...
. /tests/report.sh
wire=$1 port=$2 share=$3 user=$4 password=$5
shift 5
. /tests/cifs.inc

# What the kernel says of its session must be what was asked for.
protected() {
  local state
  state=$(cat /proc/fs/cifs/DebugData)
  case $1 in
  plain) ! grep -qwE 'signed|encrypted' <<< "$state" ;;
  signed) grep -qw signed <<< "$state" ;;
  sealed) grep -qw encrypted <<< "$state" ;;
  esac || { echo "$state" | tr '\n' ' '; return 1; }
}

# For `set -e` too, which a line that begins with ! does not end.
refuses() {
  ! "$@" 2> /dev/null
}

by_rdma() {
  [ "$wire" = tcp ] || grep -q 'RDMA\|SMBDirect' /proc/fs/cifs/DebugData
}

download() {
  rm -rf /tmp/down
  cp -r /mnt/down /tmp/down && (cd /tmp/down && sha256sum --quiet -c /mnt/down.sha256)
}

# The host checks the sums.
upload() {
  cp -r "$tree" "/mnt/up-$1" && (cd "$tree" && find . -type f -exec sha256sum {} +) > "/mnt/up-$1.sha256"
}

sizes() {
  local size file
  for size in 0 1 4095 4096 65537 1048576; do
    file=/tmp/size-$size
    head -c $size /dev/urandom > $file
    dd if=$file of=/mnt/size-$size bs=8M 2> /dev/null && cmp $file /mnt/size-$size || return 1
    rm $file /mnt/size-$size || return 1
  done
}

# Requests of 8 MiB where they may be so large.
large() {
  head -c 16777216 /dev/urandom > /tmp/large &&
    dd if=/tmp/large of=/mnt/large bs=8M oflag=direct 2> /dev/null &&
    dd if=/mnt/large bs=8M iflag=direct 2> /dev/null | cmp - /tmp/large &&
    rm /mnt/large /tmp/large
}

# The first, and two more.
connections() {
  grep -q 'Extra Channels: 2' /proc/fs/cifs/DebugData ||
    { grep -iE 'channel|interface|speed' /proc/fs/cifs/DebugData | tr '\n' ' '; return 1; }
}

# The first connection ends while a file is open and being written to; nothing of it is lost. The
# others lead to the other address.
loss() {
  local n
  set -e
  exec 7> /mnt/loss
  for ((n = 0; n < 40; n++)); do
    [ $n = 20 ] && ss -K dst "$HOST" dport = "$port" > /dev/null
    printf '%4096d' $n >&7
  done
  exec 7>&-
  for ((n = 0; n < 40; n++)); do printf '%4096d' $n; done | cmp - /mnt/loss
  rm /mnt/loss
  set +e
}

operations() {
  set -e
  rm -rf /mnt/place
  mkdir -p /mnt/place/a/b "/mnt/place/ä ö +"
  echo one > /mnt/place/a/one
  echo two >> /mnt/place/a/one
  [ "$(cat /mnt/place/a/one)" = $'one\ntwo' ]
  mv /mnt/place/a/one "/mnt/place/ä ö +/eins"
  [ ! -e /mnt/place/a/one ]
  truncate -s 100000 "/mnt/place/ä ö +/eins"
  [ "$(stat -c %s "/mnt/place/ä ö +/eins")" = 100000 ]
  touch -d '2001-02-03 04:05:06 UTC' "/mnt/place/ä ö +/eins"
  [ "$(stat -c %Y "/mnt/place/ä ö +/eins")" = 981173106 ]
  rmdir /mnt/place/a/b
  refuses rmdir /mnt/place
  [ "$(ls /mnt/place | wc -l)" = 2 ]
  [ "$(df --output=avail /mnt | tail -n 1)" -gt 1000 ]
  rm -r /mnt/place
  set +e
}

# Two mounts that share nothing: of a lock that one has the other is told by the server, and it gets the lock when
# that is given back.
locks() {
  local waiting
  set -e
  mkdir -p /run/other
  timeout 60 mount -t cifs "//$HOST/$share" /run/other -o "$(options "$1" nosharesock)"
  exec 8> /mnt/locked
  flock -n 8
  refuses flock -n /run/other/locked true
  flock /run/other/locked true & waiting=$!
  # Long enough for it to ask; if it was not, the lock is had all the same.
  sleep 1
  kill -0 $waiting
  flock -u 8
  wait $waiting
  exec 8>&-
  umount /run/other
  rm /mnt/locked
  set +e
}

# Each block that is read back is held against what was written, by fio itself.
blocks() {
  (cd /mnt && fio --name=blocks --filename=blocks --size=4m --rw=randwrite --bsrange=4k-256k --iodepth=4 \
    --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --do_verify=1 --output-format=terse)
}

reach
[ "$wire" = rdma ] && direct=rdma
tree=/usr/lib/modules/$(uname -r)/kernel/crypto
echo "kernel $(uname -r), $(mount.cifs -V)"
for mode in "$@"; do
  check "$mode mount" attach "$mode" || continue
  check "$mode session" protected "$mode"
  [ "$wire" = rdma ] && check "$mode by RDMA" by_rdma
  check "$mode download" download
  check "$mode upload" upload "$mode"
  check "$mode sizes" sizes
  check "$mode operations" operations
  check "$mode large requests" large
  check "$mode locks" locks "$mode"
  check "$mode fio" blocks
  check "$mode unmount" umount /mnt
done
for mode in "$@"; do
  check "$mode mount, several connections" attach "$mode" multichannel,max_channels=3 || continue
  check "$mode all of them" connections
  check "$mode large requests over several" large
  check "$mode download over several" download
  [ "$wire" = tcp ] && check "$mode loss of the first connection" loss
  check "$mode unmount of several" umount /mnt
done
# Who has no account reads what guests may read.
check "mount of a guest" timeout 60 mount -t cifs "//$HOST/guests" /mnt -o "vers=3.1.1,guest,port=$port${direct:+,$direct}"
check "what a guest reads" download
check "a guest changes nothing" refuses touch /mnt/new
check "unmount of a guest" umount /mnt
check "mount before the restart" attach "$1"
echo "restart the server"
await restarted
check "the old mount comes back" timeout 90 bash -c 'until sha256sum /mnt/down.sha256; do sleep 1; done'
check "unmount after the restart" umount /mnt
check "mount after the restart" attach "$1"
check "download after the restart" download
check "last unmount" umount /mnt
exit 0
