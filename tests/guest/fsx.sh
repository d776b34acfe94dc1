# fsx on a share: with mmap through the client's cache, or without either, each operation on the wire.
# usage: fsx.sh tcp|rdma PORT SHARE USER PASSWORD mapped|plain OPERATIONS SEED
. /tests/report.sh
wire=$1 port=$2 share=$3 user=$4 password=$5 form=$6 operations=$7 seed=$8
case $form in
mapped) cache=strict weights=$'mapread = 2\nmapwrite = 2\ninvalidate = 0.2' ;;
plain) cache=none weights=$'mapread = 0\nmapwrite = 0\npunch_hole = 0.3\ncopy_file_range = 0.3' ;;
esac
. /tests/cifs.inc
# Signed, cifs.ko sends data in messages. Plain, it registers memory for it, and of pages that mmap
# made dirty it registers some wrongly, now and then, and gives the connection up (docs/interop.md).
case $wire-$form in
rdma-mapped) protection=signed ;;
*) protection=plain ;;
esac

# Of at most 16 KiB: what takes time here is the emulated processor, and larger requests are in cifs.sh.
settings="[opsize]
max = 16384
[weights]
close_open = 0.2
fsync = 0.2
fdatasync = 0.1
truncate = 1
read = 2
write = 2
$weights"

exercise() {
  echo "$settings" > /tmp/fsx.toml
  fsx -N "$operations" -S "$seed" -P /tmp -f /tmp/fsx.toml /mnt/exercised > /tmp/fsx.log 2>&1 ||
    { tail -n 40 /tmp/fsx.log > /mnt/fsx.log; tail -n 2 /tmp/fsx.log; return 1; }
}

# There as anybody else sees it, too.
mounted_anew() {
  sum=$(sha256sum < /mnt/exercised) && umount /mnt && attach "$protection" && [ "$sum" = "$(sha256sum < /mnt/exercised)" ]
}

reach
check "$wire, $form, $protection: mount" attach "$protection" || exit 1
SECONDS=0
check "$wire, $form: $operations operations" exercise
echo "$SECONDS s"
check "$wire, $form: the file, mounted anew" mounted_anew
check "$wire, $form: unmount" umount /mnt
exit 0
