//! `landfast bench-files`: the cost of many small files over SMB, phase by phase.

use std::cell::Cell;
use std::time::{Duration, Instant};

use client::{Client, OpenOptions, SmbUrl};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::smb::runtime;
use crate::args::BenchFiles;
use crate::failure::Failure;
use crate::interrupt::{self, Asked};
use crate::{output, remote};

/// Makes a directory of files, measures, and removes it.
pub(crate) fn run(options: &BenchFiles) -> Result<(), Failure> {
    let mut url = remote::url(&options.url)?;
    if url.path.is_empty() {
        url.path = DIRECTORY.into();
    }
    let phases = interrupt::watch(|asked| runtime()?.block_on(in_directory(&url, options, asked)));
    let phases = phases.map_err(|failure| failure.about("cannot measure", &url))?;
    if options.json {
        return output::say(&format!("{:#}\n", report(options, &phases)));
    }
    let (count, block, at_once) = (options.count, options.block, options.outstanding);
    let mut text = format!("{count} files of {block} B, {at_once} at once\n");
    for (name, took) in &phases {
        let seconds = took.as_secs_f64();
        let rate = f64::from(count) / seconds;
        text.push_str(&format!("{name:<8}{seconds:>9.3} s{rate:>12.0} files/s\n"));
    }
    output::say(&text)
}

type Phases = [(&'static str, Duration); 5];

async fn in_directory(
    url: &SmbUrl,
    options: &BenchFiles,
    asked: &Asked,
) -> Result<Phases, Failure> {
    let client = Client::connect(url, &options.protection.options()).await?;
    client.create_directory(&url.path).await?;
    let measured = measure(&client, url, options, asked).await;
    if measured.is_err() {
        // Files that cannot be removed stay; the failure is reported all the same.
        let _ = remove(&client, url).await;
    }
    measured
}

/// Removes the files that were made, and their directory if nothing else is in it.
async fn remove(client: &Client, url: &SmbUrl) -> Result<(), Failure> {
    for entry in client.list(&url.path).await? {
        if entry.name.starts_with(PREFIX) {
            client.delete(&format!("{}/{}", url.path, entry.name)).await?;
        }
    }
    Ok(client.delete(&url.path).await?)
}

async fn measure(
    client: &Client,
    url: &SmbUrl,
    options: &BenchFiles,
    asked: &Asked,
) -> Result<Phases, Failure> {
    let block = usize::try_from(options.block).map_err(|_| Failure::ConfigValue {
        what: "-b",
        value: options.block.to_string(),
        why: "that much does not fit in memory",
    })?;
    let bytes = vec![0x5a; block];
    let create = in_lanes(options, asked, async |index| {
        let file = client.open(&path(url, index), &OpenOptions::create()).await?;
        file.write_at(0, &bytes).await?;
        Ok(file.close().await?)
    });
    let create = create.await?;
    let stat = in_lanes(options, asked, async |index| {
        Ok(client.stat(&path(url, index)).await.map(drop)?)
    });
    let stat = stat.await?;
    let rename = in_lanes(options, asked, async |index| {
        Ok(client.rename(&path(url, index), &renamed(url, index), false).await?)
    });
    let rename = rename.await?;
    let begin = Instant::now();
    let found = client.list(&url.path).await?.len();
    let list = begin.elapsed();
    if usize::try_from(options.count) != Ok(found) {
        let what = format!("{found} of {} files were listed", options.count);
        return Err(Failure::Child { process: "the server", what });
    }
    let delete =
        in_lanes(options, asked, async |index| Ok(client.delete(&renamed(url, index)).await?));
    let delete = delete.await?;
    client.delete(&url.path).await?;
    Ok([("create", create), ("stat", stat), ("rename", rename), ("list", list), ("delete", delete)])
}

/// Applies an operation to every file, several at once; returns the time of all of them.
async fn in_lanes(
    options: &BenchFiles,
    asked: &Asked,
    work: impl AsyncFn(u32) -> Result<(), Failure>,
) -> Result<Duration, Failure> {
    let begin = Instant::now();
    let step = u32::from(options.outstanding);
    let has_failed = Cell::new(false);
    let lanes = (0..step).map(async |first| -> Result<(), Failure> {
        let mut index = first;
        while index < options.count && !has_failed.get() {
            let worked = match asked.check() {
                Ok(()) => work(index).await,
                asked => asked,
            };
            has_failed.set(has_failed.get() || worked.is_err());
            worked?;
            index += step;
        }
        Ok(())
    });
    // No lane is given up half way: its open file could not be removed.
    join_all(lanes).await.into_iter().collect::<Result<(), Failure>>()?;
    Ok(begin.elapsed())
}

fn path(directory: &SmbUrl, index: u32) -> String {
    format!("{}/{PREFIX}{index:07}.dat", directory.path)
}

fn renamed(directory: &SmbUrl, index: u32) -> String {
    format!("{}/{PREFIX}{index:07}.renamed", directory.path)
}

fn report(options: &BenchFiles, phases: &Phases) -> Value {
    let seconds: Map<String, Value> =
        phases.iter().map(|(name, took)| ((*name).to_owned(), json!(took.as_secs_f64()))).collect();
    json!({ "count": options.count, "block": options.block, "outstanding": options.outstanding,
            "seconds": seconds })
}

const PREFIX: &str = "file-";
// The directory of a URL that names only a share.
const DIRECTORY: &str = "landfast-bench-files";
