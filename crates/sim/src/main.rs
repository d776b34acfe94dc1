//! `landfast-sim`: Landfast's programs on virtual time, under one scheduler. One seed, one run.
mod auxiliary;
mod calls;
mod chance;
mod failure;
mod files;
mod machine;
mod net;
mod program;
mod sockets;
mod stage;
mod trace;
mod tracee;

use std::ffi::OsString;
use std::path::PathBuf;
use crate::machine::*;

fn main() {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words[0] == "stage" {
        eprintln!("{}", stage::become_traced(&words[2..]));
        std::process::exit(3);
    }
    let seed: u64 = words[0].to_str().unwrap().parse().unwrap();
    let dir = PathBuf::from(&words[1]);
    let lines = (words.len() > 4).then(|| std::fs::File::create(&words[4]).unwrap());
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("share")).unwrap();
    let text = format!("[[share]]\nname = \"data\"\npath = {:?}\npersistent_opens = {:?}\n\n[[user]]\nname = \"u\"\npassword = \"secretword1\"\n", dir.join("share"), dir.join("opens"));
    std::fs::write(dir.join("c.toml"), text).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir.join("c.toml"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let conditions = Conditions { seed, switch_one_in: 4, weather: net::Weather { cut_one_in: 0, silence_one_in: 0 } };
    let mut machine = Machine::new(format!("landfast-sim-{}", std::process::id()), conditions, lines).unwrap();
    let s = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let d = |n: &str| dir.join(n).to_str().unwrap().to_owned();
    let began = std::time::Instant::now();
    let server = machine.start(&s(&[words[2].to_str().unwrap(), "serve", "--listen", "127.0.0.1:445", "--rdma-listen", "127.0.0.1:5445", "--config", &d("c.toml"), "--control", &d("control")]), &dir.join("server.log")).unwrap();
    while !machine.net.is_listening(5445) {
        let e = machine.run(machine.now + 1_000_000).unwrap();
        if e != Event::Time { println!("{e:?}"); return; }
    }
    println!("server {server} up: {:?} {} steps {:x}", began.elapsed(), machine.steps, machine.trace.digest());
    let model = machine.start(&s(&[words[3].to_str().unwrap(), "127.0.0.1:445", "data", &d("share"), "--direct", "127.0.0.1:5445", "--user", "u:secretword1", "--clients", "3", "--seconds", "1", "--seed", &seed.to_string()]), &dir.join("model.log")).unwrap();
    let event = machine.run(200_000_000_000).unwrap();
    println!("{model} {event:?} {:?} {} steps {:x} at {}", began.elapsed(), machine.steps, machine.trace.digest(), machine.now);
}
