//! The source of `put`: a local file, which must not change meanwhile, or standard input.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::args::Put;
use crate::failure::Failure;
use crate::files::{fill, is_pipe, off_thread};
use crate::output;

/// The source of the bytes.
pub(super) struct Source {
    /// `None` while another thread reads from it.
    reader: Option<Box<dyn Read + Send>>,
    path: PathBuf,
    /// A regular file and its stamp, to detect a change.
    before: Option<(fs::File, Stamp)>,
}

/// Length and time of the last change: whoever sets the time of the last write back changes that.
type Stamp = (u64, (i64, i64));

impl Source {
    pub(super) fn open(options: &Put) -> Result<Self, Failure> {
        let path = options.local.clone();
        if is_pipe(&path) {
            output::check_input()?;
            return Ok(Self { reader: Some(Box::new(io::stdin())), path, before: None });
        }
        output::check_path("cannot read", &path)?;
        let failed = || Failure::local("cannot read", &path);
        let file = fs::File::open(&path).map_err(failed())?;
        let metadata = file.metadata().map_err(failed())?;
        if metadata.is_dir() {
            return Err(failed()(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let before = match metadata.is_file() {
            true => Some((file.try_clone().map_err(failed())?, stamp(&metadata))),
            false => None,
        };
        Ok(Self { reader: Some(Box::new(file)), path, before })
    }

    pub(super) fn len(&self) -> u64 {
        self.before.as_ref().map_or(0, |(_, (len, _))| *len)
    }

    /// The local name of the source, if it has one.
    pub(super) fn name(&self) -> Result<Option<String>, Failure> {
        let Some(name) = self.path.file_name().filter(|_| !is_pipe(&self.path)) else {
            return Ok(None);
        };
        // A similar name may be that of another file.
        let unfit = || Failure::Unfit {
            action: "cannot write",
            what: format!("{:?}", self.path),
            why: "its name is not UTF-8, or a backslash or colon in it would mean something else there: write the \
                  name that it is to have at the end of the URL",
        };
        // Nor a name that the server would take for several components, or for a stream.
        let name = name.to_str().filter(|name| !name.contains(['\\', ':']));
        name.map(|name| Some(name.to_owned())).ok_or_else(unfit)
    }

    pub(super) async fn next(&mut self, mut buffer: Vec<u8>) -> Result<(Vec<u8>, usize), Failure> {
        let mut reader = self.reader.take().expect("one read at a time");
        let work = move || {
            let taken = fill(&mut *reader, &mut buffer);
            (reader, buffer, taken)
        };
        let (reader, buffer, taken) = off_thread(work).await?;
        self.reader = Some(reader);
        Ok((buffer, taken.map_err(Failure::local("cannot read", &self.path))?))
    }

    pub(super) fn check_unchanged(&self, sent: u64) -> Result<(), Failure> {
        let Some((file, before)) = &self.before else { return Ok(()) };
        let now = file.metadata().map_err(Failure::local("cannot read", &self.path))?;
        if stamp(&now) != *before || (before.0 != 0 && sent != before.0) {
            return Err(Failure::Changed(self.path.display().to_string()));
        }
        Ok(())
    }
}

fn stamp(metadata: &fs::Metadata) -> Stamp {
    (metadata.len(), (metadata.ctime(), metadata.ctime_nsec()))
}
