# fsx on a share: with mmap through the client's cache, and without, each operation on the wire.
# usage: fsx.sh tcp|rdma PORT SHARE USER PASSWORD OPERATIONS SEED
. /tests/report.sh
wire=$1 port=$2 share=$3 user=$4 password=$5 operations=$6 seed=$7
. /tests/cifs.inc

# Of at most 16 KiB: what takes time here is the emulated processor, and larger requests are in cifs.sh.
common='close_open = 0.2
fsync = 0.2
fdatasync = 0.1
truncate = 1
read = 2
write = 2'

# exercise NAME WEIGHTS
exercise() {
  printf '[opsize]\nmax = 16384\n[weights]\n%s\n%s\n' "$common" "$2" > "/tmp/$1.toml"
  fsx -N "$operations" -S "$seed" -P /tmp -f "/tmp/$1.toml" "/mnt/$1" > "/tmp/$1.log" 2>&1 ||
    { grep -v '^\[' "/tmp/$1.log" | head -n 5; tail -n 40 "/tmp/$1.log" > "/mnt/$1.log"; tail -n 2 "/tmp/$1.log"; return 1; }
}

# There as anybody else sees it, too.
mounted_anew() {
  sum=$(sha256sum < "/mnt/$1") && umount /mnt && attach plain && [ "$sum" = "$(sha256sum < "/mnt/$1")" ]
}

reach
cache=strict
check "$wire: mount" attach plain || exit 1
SECONDS=0
check "$wire: $operations operations with mmap" exercise mapped $'mapread = 2\nmapwrite = 2\ninvalidate = 0.2'
echo "with mmap: $SECONDS s"
check "$wire: the file, mounted anew" mounted_anew mapped
check "$wire: unmount" umount /mnt
cache=none
check "$wire: mount without cache" attach plain || exit 1
SECONDS=0
check "$wire: $operations operations without mmap" exercise plain $'mapread = 0\nmapwrite = 0\npunch_hole = 0.3\ncopy_file_range = 0.3'
echo "without mmap: $SECONDS s"
check "$wire: the file, mounted anew" mounted_anew plain
check "$wire: last unmount" umount /mnt
exit 0
