//! `landfast bench-files`: what many small files cost over SMB, phase by phase.

use std::time::{Duration, Instant};

use client::{Client, OpenOptions, SmbUrl};
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use super::smb::runtime;
use crate::args::BenchFiles;
use crate::failure::Failure;
use crate::remote;

/// Makes a directory of files, measures, and removes it.
pub(crate) fn run(options: &BenchFiles) -> Result<(), Failure> {
    let mut url = remote::url(&options.url)?;
    if url.path.is_empty() {
        url.path = DIRECTORY.into();
    }
    let phases = runtime()?.block_on(measure(&url, options));
    let phases = phases.map_err(|failure| failure.about("cannot measure", &url))?;
    if options.json {
        println!("{:#}", report(options, &phases));
    } else {
        println!("{} files of {} B, {} at once", options.count, options.block, options.outstanding);
        for (name, took) in &phases {
            let seconds = took.as_secs_f64();
            println!(
                "{name:<8}{seconds:>9.3} s{:>12.0} files/s",
                f64::from(options.count) / seconds
            );
        }
    }
    Ok(())
}

type Phases = [(&'static str, Duration); 4];

async fn measure(url: &SmbUrl, options: &BenchFiles) -> Result<Phases, Failure> {
    let client = Client::connect(url, &options.protection.options()).await?;
    client.create_directory(&url.path).await?;
    let block = usize::try_from(options.block).map_err(|_| Failure::ConfigValue {
        what: "-b",
        value: options.block.to_string(),
        why: "that much does not fit in memory",
    })?;
    let bytes = vec![0x5a; block];
    let path = |index: u32| format!("{}/file-{index:07}.dat", url.path);
    let client = &client;

    let create = in_lanes(options, async |index| {
        let file = client.open(&path(index), &OpenOptions::create()).await?;
        file.write_at(0, &bytes).await?;
        Ok(file.close().await?)
    });
    let create = create.await?;
    let stat = in_lanes(options, async |index| Ok(client.stat(&path(index)).await.map(drop)?));
    let stat = stat.await?;
    let begin = Instant::now();
    let found = client.list(&url.path).await?.len();
    let list = begin.elapsed();
    if usize::try_from(options.count) != Ok(found) {
        let what = format!("{found} of {} files were listed", options.count);
        return Err(Failure::Child { process: "the server", what });
    }
    let delete = in_lanes(options, async |index| Ok(client.delete(&path(index)).await?)).await?;
    client.delete(&url.path).await?;
    Ok([("create", create), ("stat", stat), ("list", list), ("delete", delete)])
}

/// Does something to every file, several at once; returns how long all of it took.
async fn in_lanes(
    options: &BenchFiles,
    work: impl AsyncFn(u32) -> Result<(), Failure>,
) -> Result<Duration, Failure> {
    let begin = Instant::now();
    let step = u32::from(options.outstanding);
    let lanes = (0..step).map(async |first| -> Result<(), Failure> {
        let mut index = first;
        while index < options.count {
            work(index).await?;
            index += step;
        }
        Ok(())
    });
    try_join_all(lanes).await?;
    Ok(begin.elapsed())
}

fn report(options: &BenchFiles, phases: &Phases) -> Value {
    let seconds: Map<String, Value> =
        phases.iter().map(|(name, took)| ((*name).to_owned(), json!(took.as_secs_f64()))).collect();
    json!({ "count": options.count, "block": options.block, "outstanding": options.outstanding,
            "seconds": seconds })
}

// The directory of a URL that names only a share.
const DIRECTORY: &str = "landfast-bench-files";
