# A source tree unpacked, built, run, moved and removed on a share; the same on the guest's own disk. The host compares.
# usage: build.sh tcp|rdma PORT SHARE USER PASSWORD
. /tests/report.sh
wire=$1 port=$2 share=$3 user=$4 password=$5
cache=strict
. /tests/cifs.inc
tools=/run/tools

# The disk with the compiler, laid over the guest's own.
tools() {
  mkdir -p $tools && mount -o ro /dev/vdb $tools && mount -t overlay -o "lowerdir=/usr:$tools/usr" overlay /usr && tcc -v
}

# unpack DIRECTORY
unpack() {
  mkdir "$1" && tar -C "$1" -xzf $tools/source.tar.gz
}

# compile DIRECTORY
compile() {
  make -C "$1"/*/src generic CC=tcc AR='tcc -ar rcs' RANLIB=true > /tmp/make.log 2>&1 || { tail -n 3 /tmp/make.log; return 1; }
}

# Who has built everything finds nothing to do: the times of files are in the order they were made in.
settled() {
  make -q -C "$1"/*/src all CC=tcc AR='tcc -ar rcs' RANLIB=true
}

# runs DIRECTORY: what was built computes, writes and reads files, and runs what its own compiler made.
runs() {
  (cd "$1" && cp /tests/program.lua . && ./*/src/lua program.lua > said.txt && ./*/src/luac -s -o compiled program.lua &&
    ./*/src/lua compiled > said-again.txt && cmp said.txt said-again.txt && tail -n 1 said.txt)
}

# sums DIRECTORY: each file and what is in it.
sums() {
  (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

# Nothing of the client's memory is left after a new mount.
equal() {
  umount /mnt && attach plain && sums /mnt/build > /tmp/there.sums && cmp /tmp/here.sums /tmp/there.sums && wc -l < /tmp/there.sums
}

moved() {
  cp -r /mnt/build /mnt/copy && mv /mnt/copy /mnt/elsewhere && sums /mnt/elsewhere | cmp - /tmp/here.sums &&
    rm -r /mnt/elsewhere && [ ! -e /mnt/elsewhere ]
}

reach
check "$wire: the compiler" tools || exit 1
check "$wire: mount" attach plain || exit 1
for step in unpack compile settled runs; do
  SECONDS=0
  check "$wire: here, $step" $step /tmp/build
  here=$SECONDS SECONDS=0
  check "$wire: on the share, $step" $step /mnt/build
  echo "$step: $here s here, $SECONDS s on the share"
done
sums /tmp/build > /tmp/here.sums
check "$wire: the same files, mounted anew" equal
check "$wire: copied, moved, removed" moved
cp /tmp/here.sums /mnt/build.sums
check "$wire: unmount" umount /mnt
exit 0
