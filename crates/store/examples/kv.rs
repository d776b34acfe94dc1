//! A key-value store on one-sided reads, beside the same keys asked of a server by request and answer.
//!
//! `cargo run --release -p landfast-store --example kv [RECORDS] [SECONDS]`
//!
//! Both arms have the same values of 1,000 bytes, in the same file of the same daemon's directory, the same number of
//! operations under way from one client thread, and take turns. The control arm's server reads (pread) and sends, all
//! requests that have arrived in one go; the store's daemon does not know that a key was asked for. YCSB C is reads
//! alone, B has 5 updates in 100; keys are drawn by YCSB's zipfian distribution, 0.99.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::data::{Shape, Table};
use store::meta::record::Class;
use store::{
    Allocation, Outcome, Rights, ServerOptions, Store, StoreKey, StoreOptions, StoreServer,
};

const OUTSTANDING: usize = 16;
const VALUE: usize = 1000;
const REQUEST: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let pieces = directory.path().join("pieces");
    let meta = store::meta::open(directory.path().join("meta").to_str().ok_or("a path in UTF-8")?)?;
    let key = StoreKey::draw(&basics::Environment::host())?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let options = ServerOptions::new("kv", pieces.clone(), Arc::clone(&meta), key.clone());
    let _server = StoreServer::start(options, runtime.handle())?;
    let store = Store::open(StoreOptions::new(meta, Some(key)))?;

    let value_max = u32::try_from(VALUE)?;
    let shape = Shape { key_max: 8, value_max, slots: records * 2 };
    let wanted = Allocation { width: 1, ..Allocation::new(shape.region_len(), Class::Volatile) };
    store.create("kv", &wanted)?;
    let table = Table::create(store.map("kv", Rights::READ | Rights::WRITE)?, shape)?;
    // YCSB loads its keys in the order of their hashes.
    let mut is_loaded = Vec::new();
    for number in 0..records {
        is_loaded.push(table.put(&name(number), &value(number)).is_ok());
    }
    let loaded = is_loaded.iter().filter(|is_loaded| **is_loaded).count();
    println!(
        "{loaded} of {records} keys loaded, {VALUE} bytes each, {OUTSTANDING} operations under way"
    );

    let control = Control::start(&piece_of(&pieces)?)?;
    let mut zipf = Zipf::new(records, is_loaded);
    println!(
        "{:<10} {:>22} {:>22} {:>7}",
        "workload", "one-sided, ops/s", "read+send, ops/s", "ratio"
    );
    for (workload, updates) in [("YCSB C", 0), ("YCSB B", 5)] {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            let turn = Duration::from_secs_f64(seconds);
            rates[0].push(one_sided(&table, &mut zipf, updates, turn)?);
            rates[1].push(control.ask(&table, &mut zipf, updates, turn)?);
        }
        let [one, other] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[1]
        });
        println!("{workload:<10} {one:>22.0} {other:>22.0} {:>7.2}", one / other);
    }
    Ok(())
}

/// Operations a second by one-sided reads and writes.
fn one_sided(
    table: &Table,
    zipf: &mut Zipf,
    updates: u64,
    turn: Duration,
) -> Result<f64, Box<dyn Error>> {
    let region = table.region();
    let (begun, mut done) = (Instant::now(), 0_u32);
    let mut asked = HashMap::new();
    loop {
        let goes_on = begun.elapsed() < turn;
        while goes_on && asked.len() < OUTSTANDING {
            let number = zipf.next();
            let key = name(number);
            if zipf.below(100) < updates {
                table.put(&key, &value(number))?;
                done += 1;
                continue;
            }
            let (offset, len) = table.place(&key);
            asked.insert(region.submit_read(offset, len)?, number);
        }
        if asked.is_empty() {
            return Ok(f64::from(done) / begun.elapsed().as_secs_f64());
        }
        let completion = region.next_completion(Duration::from_secs(10))?;
        let number = asked.remove(&completion.ticket).ok_or("a ticket that was asked for")?;
        let Outcome::Bytes(slot) = completion.outcome? else { return Err("no bytes".into()) };
        let found = match table.look(&name(number), &slot) {
            Some(found) => Some(found),
            None => table.get(&name(number))?,
        };
        check(number, found.as_deref())?;
        done += 1;
    }
}

/// The control arm: a server that reads and sends.
struct Control {
    stream: std::cell::RefCell<TcpStream>,
}

impl Control {
    /// Serves one connection from the file of a piece.
    fn start(piece: &Path) -> Result<Self, Box<dyn Error>> {
        let file = File::options().read(true).write(true).open(piece)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nodelay(true)?;
        let (served, _) = listener.accept()?;
        served.set_nodelay(true)?;
        std::thread::spawn(move || serve(served, &file));
        Ok(Self { stream: std::cell::RefCell::new(stream) })
    }

    fn ask(
        &self,
        table: &Table,
        zipf: &mut Zipf,
        updates: u64,
        turn: Duration,
    ) -> Result<f64, Box<dyn Error>> {
        let mut stream = self.stream.borrow_mut();
        let (begun, mut done) = (Instant::now(), 0_u32);
        let mut asked: VecDeque<u64> = VecDeque::new();
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; 256 << 10];
        loop {
            let goes_on = begun.elapsed() < turn;
            output.clear();
            while goes_on && asked.len() < OUTSTANDING {
                let number = zipf.next();
                let writes = zipf.below(100) < updates;
                let (offset, len) = table.place(&name(number));
                output.extend(offset.to_le_bytes());
                output.extend(u32::try_from(len)?.to_le_bytes());
                output.extend(u32::from(writes).to_le_bytes());
                if writes {
                    output.extend(value(number));
                }
                asked.push_back(number);
            }
            if asked.is_empty() {
                return Ok(f64::from(done) / begun.elapsed().as_secs_f64());
            }
            stream.write_all(&output)?;
            let read = stream.read(&mut buffer)?;
            input.extend_from_slice(&buffer[..read]);
            let mut taken = 0;
            while let Some(number) = asked.front() {
                let (_, len) = table.place(&name(*number));
                let Some(slot) = input.get(taken..taken + len) else { break };
                // A key that is not in its first slot is looked for by nobody in this arm: the control is favoured.
                if let Some(found) = table.look(&name(*number), slot) {
                    check(*number, Some(&found))?;
                }
                taken += len;
                asked.pop_front();
                done += 1;
            }
            input.drain(..taken);
        }
    }
}

/// Answers each request with the bytes of its slot; all that have arrived are answered by one send.
fn serve(mut stream: TcpStream, file: &File) {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 256 << 10];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        input.extend_from_slice(&buffer[..read]);
        let mut taken = 0;
        while let Some(head) = input.get(taken..taken + REQUEST) {
            let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
            let offset = u64::from_le_bytes(head[..8].try_into().expect("eight")) + PIECE_HEADER;
            let (len, writes) = (usize::try_from(word(8)).expect("32 bits"), word(12) == 1);
            let whole = REQUEST + if writes { VALUE } else { 0 };
            let Some(request) = input.get(taken..taken + whole) else { break };
            if writes {
                // The value alone: key and lengths are the same, and the checksum too, as the value is.
                let _ = file.write_all_at(&request[REQUEST..], offset + SLOT_HEAD + 8);
            }
            let begin = output.len();
            output.resize(begin + len, 0);
            let _ = file.read_exact_at(&mut output[begin..], offset);
            taken += whole;
        }
        input.drain(..taken);
        if stream.write_all(&output).is_err() {
            return;
        }
        output.clear();
    }
}

fn piece_of(directory: &Path) -> Result<std::path::PathBuf, Box<dyn Error>> {
    let entries = std::fs::read_dir(directory)?.filter_map(Result::ok).map(|entry| entry.path());
    let piece = entries.into_iter().find(|path| path.extension().is_some_and(|end| end == "0000"));
    piece.ok_or_else(|| "the daemon has a piece".into())
}

fn name(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(VALUE / 8)
}

fn check(number: u64, found: Option<&[u8]>) -> Result<(), Box<dyn Error>> {
    match found {
        Some(bytes) if bytes[..8] == number.to_le_bytes() => Ok(()),
        Some(_) => Err("the value of another key".into()),
        None => Err("a key that was loaded has no value".into()),
    }
}

/// YCSB's zipfian distribution, scattered over the keys.
struct Zipf {
    count: u64,
    zeta: f64,
    state: u64,
    /// A key for which the table had no room is not asked for, nor updated, in either arm.
    is_loaded: Vec<bool>,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the count")]
impl Zipf {
    fn new(count: u64, is_loaded: Vec<bool>) -> Self {
        let zeta = (1..=count).map(|rank| 1.0 / (rank as f64).powf(THETA)).sum();
        Self { count, zeta, state: 0x9e37_79b9_7f4a_7c15, is_loaded }
    }

    fn below(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % below
    }

    fn next(&mut self) -> u64 {
        loop {
            let number = self.draw();
            if self.is_loaded[usize::try_from(number).expect("they were counted")] {
                return number;
            }
        }
    }

    fn draw(&mut self) -> u64 {
        // Gray et al., "Quickly generating billion-record synthetic databases", as YCSB has it.
        let uniform = self.below(1 << 52) as f64 / (1_u64 << 52) as f64;
        let scaled = uniform * self.zeta;
        let zeta_two = 1.0 + 0.5_f64.powf(THETA);
        let rank = if scaled < 1.0 {
            0
        } else if scaled < zeta_two {
            1
        } else {
            let count = self.count as f64;
            let eta = (1.0 - (2.0 / count).powf(1.0 - THETA)) / (1.0 - zeta_two / self.zeta);
            (count * (eta * uniform - eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
        };
        rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.count
    }
}

const THETA: f64 = 0.99;
const PIECE_HEADER: u64 = 4096;
const SLOT_HEAD: u64 = 16;
