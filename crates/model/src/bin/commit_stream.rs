//! A stream of pushed commits for servers that are to be killed, and the check of the file
//! afterwards.
//!
//! `commit_stream stream URL FIRST [PROVIDER]` writes and commits block after block of a file of
//! [`BLOCKS`] blocks and one more, prints how far it got, and ends when the server ends, with
//! `acknowledged N sent M`. `commit_stream check URL N M` reads the file from a server that was
//! started again and checks each word against those numbers.
//!
//! Write number `n` goes to block `n % BLOCKS` and fills it with words made of `n` and their place.
//! After a crash each word of a block may be of the last acknowledged write of the block or of a
//! later write that was in flight.
//!
//! The block behind them begins with a pointer to the last write that was published. Where the server
//! keeps the order, write `n`, its commit and the atomic write of `n` to the pointer are posted
//! together, without waiting: the write that the pointer names is durable, acknowledged or not.

use client::blocking::Client;
use client::{ConnectOptions, OpenOptions, Path, Region, RegionSettings, SmbUrl};
use rdma::ProviderChoice;
use smb::push::{Durability, PushRequest, Rights};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["stream", url, first] => stream(&url.parse()?, first.parse()?, ProviderChoice::Soft),
        ["stream", url, first, provider] => {
            stream(&url.parse()?, first.parse()?, provider.parse()?)
        }
        ["check", url, acknowledged, sent] => {
            check(&url.parse()?, acknowledged.parse()?, sent.parse()?)
        }
        _ => Err("commit_stream stream URL FIRST [PROVIDER] | check URL ACKNOWLEDGED SENT".into()),
    }
}

fn stream(url: &SmbUrl, first: u64, provider: ProviderChoice) -> Result<(), Failure> {
    let push = PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
        durability: Durability::STORAGE,
        accept_emulated: false,
        regions_max: 1,
    };
    let client = Client::connect(url, &ConnectOptions::default())?;
    // A pointer is posted behind the last write that may be open, and needs a place too.
    let outstanding_max = OUTSTANDING + 1;
    let settings = RegionSettings { provider, outstanding_max, ..RegionSettings::default() };
    let options = OpenOptions::read_write().with_push(push);
    let mut region = client.map(&url.path, &options, 0..POINTER + wide(BLOCK), settings)?;
    let publishes = region.orders_atomic_writes();
    let order = if publishes { "in one go" } else { "not published" };
    println!("region {}, {order}", region.path());
    if publishes {
        region.write_commit(POINTER, &pointer_block(first - 1))?;
    }
    let (mut sent, mut acknowledged) = (first - 1, first - 1);
    while pushed(&region) {
        let number = sent + 1;
        if region.submit_write_commit(number % BLOCKS * wide(BLOCK), &content(number)).is_err() {
            break;
        }
        sent = number;
        if publishes && region.orders_atomic_writes() && region.atomic_write(POINTER, sent).is_err()
        {
            break;
        }
        if region.outstanding() == OUTSTANDING {
            if region.finish(&mut []).is_err() {
                break;
            }
            acknowledged += 1;
            if acknowledged % 64 == 0 {
                // A region keeps a write that is never committed for ever.
                if publishes && region.commit(POINTER, 8).is_err() {
                    break;
                }
                println!("acknowledged {acknowledged}");
            }
        }
    }
    // One write more than was submitted may have left: a failed submission may have been sent.
    eprintln!("it went by {}", region.path());
    println!("ended acknowledged {acknowledged} sent {}", sent + 1);
    Ok(())
}

fn pushed(region: &Region) -> bool {
    matches!(region.path(), Path::Push { .. })
}

fn check(url: &SmbUrl, acknowledged: u64, sent: u64) -> Result<(), Failure> {
    if acknowledged < BLOCKS {
        return Err("not every block was written".into());
    }
    let client = Client::connect(url, &ConnectOptions::default())?;
    let file = client.open(&url.path, &OpenOptions::read())?;
    let mut block = vec![0; BLOCK];
    let mut published = [0; 8];
    let acknowledged = match file.read_at(POINTER, &mut published)? {
        8 => acknowledged.max(u64::from_le_bytes(published)),
        _ => acknowledged,
    };
    if acknowledged > sent {
        return Err(format!("the pointer names write {acknowledged}, which nobody sent").into());
    }
    for number in acknowledged - BLOCKS + 1..=acknowledged {
        let mut offset = number % BLOCKS * wide(BLOCK);
        let mut filled = 0;
        while filled < BLOCK {
            let taken = file.read_at(offset, &mut block[filled..])?;
            if taken == 0 {
                return Err(format!("the file ends at {offset}").into());
            }
            filled += taken;
            offset += wide(taken);
        }
        let allowed: Vec<_> = std::iter::successors(Some(number), |number| Some(number + BLOCKS))
            .take_while(|candidate| *candidate <= sent)
            .map(content)
            .collect();
        for at in (0..BLOCK).step_by(8) {
            let word = &block[at..at + 8];
            if !allowed.iter().any(|content| content[at..at + 8] == *word) {
                return Err(format!(
                    "block {}: byte {at} holds {word:02x?}, which is neither write {number}, which \
                     was acknowledged, nor one after it",
                    number % BLOCKS
                )
                .into());
            }
        }
    }
    println!("all {BLOCKS} blocks hold their last acknowledged write or a later one");
    Ok(())
}

fn content(number: u64) -> Vec<u8> {
    let words = (0..wide(BLOCK) / 8).map(|index| (number << 16 | index).to_le_bytes());
    words.flatten().collect()
}

/// The pointer, and words that identify the pointer block in an image of the medium.
fn pointer_block(published: u64) -> Vec<u8> {
    [&published.to_le_bytes()[..], &b"pointer!".repeat(BLOCK / 8 - 1)].concat()
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("no block is larger")
}

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
const POINTER: u64 = BLOCKS * 4096;
const OUTSTANDING: usize = 8;
