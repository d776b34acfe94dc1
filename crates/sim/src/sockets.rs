//! TCP sockets of programs, as sockets of the unix family whose other end the network of the run holds.

use std::net::{Ipv4Addr, SocketAddrV4};

use rustix::event::PollFlags;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::net::Side;
use crate::program::Socket;
use crate::tracee::{Call, low_half};

impl Machine {
    /// Whether a call is about a TCP socket, or ends a descriptor.
    pub(crate) fn is_of_sockets(&self, number: usize, call: &Call) -> bool {
        match call.number() {
            libc::SYS_socket => {
                matches!(low_half(call.argument(0)), libc::AF_INET | libc::AF_INET6)
            }
            libc::SYS_close => true,
            libc::SYS_bind
            | libc::SYS_listen
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_connect
            | libc::SYS_getsockname
            | libc::SYS_getpeername
            | libc::SYS_setsockopt
            | libc::SYS_getsockopt
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_dup
            | libc::SYS_fcntl
            | libc::SYS_shutdown => self.socket(number, call.descriptor(0)).is_some(),
            _ => false,
        }
    }

    fn socket(&self, number: usize, fd: i32) -> Option<Socket> {
        self.programs[self.threads[number].program].sockets.get(&fd).copied()
    }

    fn keep(&mut self, number: usize, fd: i32, socket: Socket) {
        let program = self.threads[number].program;
        self.programs[program].sockets.insert(fd, socket);
    }

    /// Carries out a call about a TCP socket.
    pub(crate) fn socket_call(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let fd = call.descriptor(0);
        self.is_stirred |=
            matches!(call.number(), libc::SYS_close | libc::SYS_connect | libc::SYS_shutdown);
        match (call.number(), self.socket(number, fd)) {
            (libc::SYS_socket, _) => self.make_socket(number, call),
            (libc::SYS_close, socket) => self.close(number, call, fd, socket),
            (libc::SYS_dup | libc::SYS_fcntl, Some(socket)) => {
                let answer = self.kernel(number, call)?;
                let is_copy = call.number() == libc::SYS_dup
                    || matches!(low_half(call.argument(1)), libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
                if is_copy && answer >= 0 {
                    self.keep(number, low_half(answer.cast_unsigned()), socket);
                }
                self.restore(number, call, answer)
            }
            (libc::SYS_bind, _) => self.bind(number, call, fd),
            (libc::SYS_connect, _) => self.connect(number, call, fd),
            (libc::SYS_accept | libc::SYS_accept4, Some(Socket::Listens(port))) => {
                self.accept(number, call, port)
            }
            (libc::SYS_getsockname, Some(socket)) => self.tell_address(number, call, socket, true),
            (libc::SYS_getpeername, Some(socket)) => self.tell_address(number, call, socket, false),
            (libc::SYS_setsockopt, _) if low_half(call.argument(1)) != libc::SOL_SOCKET => {
                self.answer(number, call, 0)
            }
            (libc::SYS_getsockopt, _) => self.tell_option(number, call),
            (
                libc::SYS_sendto
                | libc::SYS_sendmsg
                | libc::SYS_write
                | libc::SYS_writev
                | libc::SYS_shutdown,
                Some(Socket::Connected(connection, side)),
            ) => {
                // Taken once the kernel has carried it out, at the thread's next stop.
                self.written = Some((connection, side));
                self.is_stirred = true;
                Ok(())
            }
            (
                libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_read | libc::SYS_readv,
                Some(Socket::Connected(connection, side)),
            ) => {
                self.net.has_room(connection, side);
                self.receive(number, call, fd)
            }
            _ => Ok(()),
        }
    }

    // Engines look for bytes in a loop: who finds none is told so here, and has spent time on it.
    fn receive(&mut self, number: usize, call: &Call, fd: i32) -> Result<(), Failure> {
        let program = self.threads[number].program;
        let program = &mut self.programs[program];
        if program.is_ready(&[(fd, PollFlags::IN)])? || program.may_wait(fd)? {
            return Ok(());
        }
        self.found_nothing(number);
        self.answer(number, call, -i64::from(libc::EAGAIN))
    }

    fn make_socket(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let kind = low_half(call.argument(1)) & 0xf;
        if kind != libc::SOCK_STREAM {
            return self.answer(number, call, -i64::from(libc::EAFNOSUPPORT));
        }
        let unix = call.with(0, u64::from(libc::AF_UNIX.cast_unsigned())).with(2, 0);
        let answer = self.kernel(number, &unix)?;
        if answer >= 0 {
            self.keep(number, low_half(answer.cast_unsigned()), Socket::Fresh);
        }
        self.restore(number, call, answer)
    }

    fn close(
        &mut self,
        number: usize,
        call: &Call,
        fd: i32,
        socket: Option<Socket>,
    ) -> Result<(), Failure> {
        let program = self.threads[number].program;
        let program = &mut self.programs[program];
        program.forget(fd);
        if socket.is_none() {
            return Ok(());
        }
        let is_last = program.sockets.values().all(|other| Some(*other) != socket);
        let answer = self.kernel(number, call)?;
        match socket.filter(|_| is_last) {
            Some(Socket::Listens(port)) => self.net.forget_listener(port),
            Some(Socket::Connected(connection, side)) => {
                self.net.collect(self.now, connection, side)
            }
            Some(Socket::Fresh | Socket::Refused) | None => {}
        }
        self.restore(number, call, answer)
    }

    fn bind(&mut self, number: usize, call: &Call, fd: i32) -> Result<(), Failure> {
        let Some(asked) = self.address_at(number, call)? else {
            return self.answer(number, call, -i64::from(libc::EAFNOSUPPORT));
        };
        let port = if asked.port() == 0 { self.net.free_port() } else { asked.port() };
        if self.net.is_listening(port) {
            return self.answer(number, call, -i64::from(libc::EADDRINUSE));
        }
        let name = self.net.listen(port);
        let answer = self.with_unix_name(number, call, &name)?;
        self.keep(number, fd, Socket::Listens(port));
        self.restore(number, call, answer)
    }

    fn connect(&mut self, number: usize, call: &Call, fd: i32) -> Result<(), Failure> {
        let Some(to) = self.address_at(number, call)? else {
            return self.answer(number, call, -i64::from(libc::EAFNOSUPPORT));
        };
        let door = self.net.door();
        let answer = self.with_unix_name(number, call, &door)?;
        if answer == 0 && !self.net.is_listening(to.port()) {
            // Nobody knows yet, as after any dial that does not wait.
            self.net.refuse()?;
            self.keep(number, fd, Socket::Refused);
            return self.restore(number, call, -i64::from(libc::EINPROGRESS));
        }
        if answer == 0 {
            let connection = self.net.dialled(self.now, to)?;
            self.keep(number, fd, Socket::Connected(connection, Side::Dialler));
            self.trace.line(|| {
                format!("{:>12} network {connection}: thread {number} dials {to}", self.now)
            });
        }
        self.restore(number, call, answer)
    }

    fn accept(&mut self, number: usize, call: &Call, port: u16) -> Result<(), Failure> {
        let with_address = call.argument(1) != 0;
        let bare = call.with(1, 0).with(2, 0);
        let answer = self.kernel(number, &bare)?;
        if answer >= 0
            && let Some(connection) = self.net.answered(port)
        {
            let side = Side::Answerer;
            self.keep(
                number,
                low_half(answer.cast_unsigned()),
                Socket::Connected(connection, side),
            );
            if with_address {
                let (_, peer) = self.net.addresses(connection, side);
                self.write_address(number, call, peer)?;
            }
        }
        self.restore(number, call, answer)
    }

    fn tell_address(
        &mut self,
        number: usize,
        call: &Call,
        socket: Socket,
        own: bool,
    ) -> Result<(), Failure> {
        let address = match (socket, own) {
            (Socket::Connected(connection, side), _) => {
                let (here, there) = self.net.addresses(connection, side);
                if own { here } else { there }
            }
            (Socket::Listens(port), true) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            (Socket::Fresh | Socket::Refused, true) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            (_, false) => return self.answer(number, call, -i64::from(libc::ENOTCONN)),
        };
        self.write_address(number, call, address)?;
        self.answer(number, call, 0)
    }

    fn tell_option(&mut self, number: usize, call: &Call) -> Result<(), Failure> {
        let refused = self.socket(number, call.descriptor(0)) == Some(Socket::Refused);
        let value: i32 = match (low_half(call.argument(1)), low_half(call.argument(2))) {
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_INET,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, libc::SO_ERROR) if refused => libc::ECONNREFUSED,
            (libc::SOL_SOCKET, _) => return Ok(()),
            (libc::IPPROTO_IP, libc::IP_MTU) => 1_500,
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                return self.answer(number, call, -i64::from(libc::ENOPROTOOPT));
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 1_448,
            _ => 1,
        };
        let tracee = &self.threads[number].tracee;
        tracee.write(call.argument(3), &value.to_le_bytes())?;
        tracee.write(call.argument(4), &4_u32.to_le_bytes())?;
        self.answer(number, call, 0)
    }

    fn address_at(&self, number: usize, call: &Call) -> Result<Option<SocketAddrV4>, Failure> {
        let given: [u8; 8] = self.threads[number].tracee.read(call.argument(1))?;
        let family = i32::from(u16::from_le_bytes([given[0], given[1]]));
        let port = u16::from_be_bytes([given[2], given[3]]);
        let address = Ipv4Addr::new(given[4], given[5], given[6], given[7]);
        Ok((family == libc::AF_INET).then(|| SocketAddrV4::new(address, port)))
    }

    fn write_address(
        &self,
        number: usize,
        call: &Call,
        address: SocketAddrV4,
    ) -> Result<(), Failure> {
        let tracee = &self.threads[number].tracee;
        let mut bytes = [0; 16];
        let family = u16::try_from(libc::AF_INET).unwrap_or(0);
        bytes[..2].copy_from_slice(&family.to_le_bytes());
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        bytes[4..8].copy_from_slice(&address.ip().octets());
        let room = u32::from_le_bytes(tracee.read(call.argument(2))?);
        let room = usize::try_from(room).unwrap_or(0).min(bytes.len());
        tracee.write(call.argument(1), &bytes[..room])?;
        tracee.write(call.argument(2), &16_u32.to_le_bytes())?;
        Ok(())
    }

    // Makes a call with an address of the unix family in place of the program's.
    fn with_unix_name(&mut self, number: usize, call: &Call, name: &str) -> Result<i64, Failure> {
        let family = u16::try_from(libc::AF_UNIX).unwrap_or(0);
        let address = [&family.to_le_bytes()[..], b"\0", name.as_bytes()].concat();
        self.threads[number].tracee.write(call.scratch(), &address)?;
        let asked = call.with(1, call.scratch()).with(2, address.len() as u64);
        self.kernel(number, &asked)
    }
}
