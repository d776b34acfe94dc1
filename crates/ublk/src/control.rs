//! Commands to `/dev/ublk-control`.
//!
//! Spec: Linux `Documentation/block/ublk.rst`, "Control plane".

use std::fs::OpenOptions;
use std::io;

use block::Geometry;
use rustix::io::Errno;
use zerocopy::IntoBytes as _;

use crate::queue::{LARGEST, SECTOR};
use crate::ring::{self, is};
use crate::uapi::{
    ADD_DEVICE, ATTRIBUTE_CACHE, ATTRIBUTE_FUA, ATTRIBUTE_READ_ONLY, ControlCommand, DELETE_DEVICE,
    DELETE_LATER, DeviceInfo, END_RECOVERY, FLAGS, GET_DEVICE, GET_PARAMETERS, KIND_BASIC,
    KIND_DISCARD, PARAMETERS_LEN, Parameters, SET_PARAMETERS, START_DEVICE, START_RECOVERY,
    STOP_DEVICE,
};

/// The control device, for one disk.
pub(crate) struct Control {
    ring: ring::Control,
    number: u32,
}

impl Control {
    pub(crate) fn open(number: u32) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        Ok(Self { ring: ring::Control::new(file)?, number })
    }

    /// What is known of the disk; `None` if there is none of this number.
    pub(crate) fn info(&mut self) -> io::Result<Option<DeviceInfo>> {
        let mut info = DeviceInfo::default();
        match self.run(GET_DEVICE, 0, info.as_mut_bytes()) {
            Ok(()) => Ok(Some(info)),
            Err(error) if is(&error, Errno::NODEV) || is(&error, Errno::INVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn add(&mut self, queues: u16, own: u64) -> io::Result<DeviceInfo> {
        let (number, largest) = (self.number, u32::try_from(LARGEST).expect("512 KiB"));
        let mut info = DeviceInfo {
            queues,
            depth: DEPTH,
            largest,
            number,
            flags: FLAGS,
            own,
            ..DeviceInfo::default()
        };
        self.run(ADD_DEVICE, 0, info.as_mut_bytes())?;
        Ok(info)
    }

    pub(crate) fn set_parameters(&mut self, geometry: Geometry) -> io::Result<()> {
        let mut parameters = parameters_of(geometry);
        self.run(SET_PARAMETERS, 0, parameters.as_mut_bytes())
    }

    /// The size of the disk in bytes.
    pub(crate) fn size(&mut self) -> io::Result<u64> {
        let mut parameters = Parameters { len: PARAMETERS_LEN, ..Parameters::default() };
        self.run(GET_PARAMETERS, 0, parameters.as_mut_bytes())?;
        Ok(parameters.sectors.saturating_mul(SECTOR))
    }

    /// Waits until all queues fetch, and shows the disk.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.run(START_DEVICE, std::process::id().into(), &mut [])
    }

    pub(crate) fn begin_recovery(&mut self) -> io::Result<()> {
        self.run(START_RECOVERY, 0, &mut [])
    }

    pub(crate) fn end_recovery(&mut self) -> io::Result<()> {
        self.run(END_RECOVERY, std::process::id().into(), &mut [])
    }

    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.run(STOP_DEVICE, 0, &mut [])
    }

    /// Removes the disk, without waiting for those who have it open; kernels before 6.9 wait.
    pub(crate) fn delete(&mut self) -> io::Result<()> {
        match self.run(DELETE_LATER, 0, &mut []) {
            Err(error) if is(&error, Errno::OPNOTSUPP) => self.run(DELETE_DEVICE, 0, &mut []),
            outcome => outcome,
        }
    }

    fn run(&mut self, operation: u32, data: u64, memory: &mut [u8]) -> io::Result<()> {
        let device = self.number;
        let command = ControlCommand { device, queue: u16::MAX, data, ..ControlCommand::default() };
        self.ring.run(operation, command, memory)
    }
}

fn parameters_of(geometry: Geometry) -> Parameters {
    // The driver has sectors from 512 bytes to those of a page.
    let block = geometry.block.clamp(512, 4096);
    let shift = u8::try_from(block.trailing_zeros()).expect("at most 12");
    let read_only = if geometry.is_read_only { ATTRIBUTE_READ_ONLY } else { 0 };
    Parameters {
        len: PARAMETERS_LEN,
        kinds: KIND_BASIC | KIND_DISCARD,
        attributes: read_only | ATTRIBUTE_CACHE | ATTRIBUTE_FUA,
        logical_shift: shift,
        physical_shift: shift,
        optimal_shift: 12,
        least_shift: shift,
        sectors_max: u32::try_from(LARGEST as u64 / SECTOR).expect("1,024"),
        sectors: geometry.size / SECTOR,
        discard_granularity: block,
        discard_max: LONGEST,
        zeroes_max: LONGEST,
        discard_segments: 1,
        ..Parameters::default()
    }
}

const CONTROL: &str = "/dev/ublk-control";
/// Requests of a queue under way.
pub(crate) const DEPTH: u16 = 64;
/// Sectors of the longest discard: 1 GiB.
const LONGEST: u32 = 1 << 21;
