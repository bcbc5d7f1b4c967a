//! What there is of the local engine where it cannot work: enough to say so.

use super::LocalOptions;
use crate::engine::{Engine, LogChunk, Signal};
use crate::error::{Error, ErrorKind};
use crate::key::AttemptKey;
use crate::observation::{HostFacts, Observation};
use crate::order::StartOrder;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Runs work as processes of this machine, if that has Linux. There is none of it here.
#[derive(Debug)]
pub enum LocalEngine {}

/// Word of changes. There is none of it here.
#[derive(Debug)]
pub enum Changes {}

/// The logs. There are none of them here.
#[derive(Clone, Debug)]
pub enum Logs {}

/// What runs work on Linux. Here it fails.
pub fn shim_main(_dir: &Path) -> ExitCode {
    eprintln!("{NEEDS_LINUX}");
    ExitCode::FAILURE
}

const NEEDS_LINUX: &str = "the local engine needs Linux";

impl LocalEngine {
    /// Always `Unsupported`.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(_dir: &Path, _options: LocalOptions) -> Result<Self, Error> {
        Err(Error::new(ErrorKind::Unsupported, NEEDS_LINUX))
    }

    /// What an operator should know.
    pub fn notes(&self) -> &[String] {
        match *self {}
    }

    /// Word of changes.
    ///
    /// # Errors
    ///
    /// None here.
    pub fn changes(&self) -> Result<Changes, Error> {
        match *self {}
    }

    /// The logs.
    pub fn logs(&self) -> Logs {
        match *self {}
    }

    /// Removes a log.
    ///
    /// # Errors
    ///
    /// None here.
    pub fn purge(&mut self, _key: &AttemptKey) -> Result<(), Error> {
        match *self {}
    }
}

impl Changes {
    /// Waits until something changed.
    ///
    /// # Errors
    ///
    /// None here.
    pub fn wait(&self, _time: Duration) -> Result<bool, Error> {
        match *self {}
    }
}

impl Logs {
    /// Reads a log.
    ///
    /// # Errors
    ///
    /// None here.
    pub fn read(
        &self,
        _key: &AttemptKey,
        _offset: u64,
        _bytes_max: usize,
    ) -> Result<LogChunk, Error> {
        match *self {}
    }
}

impl Engine for LocalEngine {
    fn hosts(&mut self) -> Result<Vec<HostFacts>, Error> {
        match *self {}
    }

    fn observe(&mut self) -> Result<Vec<Observation>, Error> {
        match *self {}
    }

    fn start(&mut self, _order: &StartOrder) -> Result<(), Error> {
        match *self {}
    }

    fn signal(&mut self, _key: &AttemptKey, _signal: Signal) -> Result<(), Error> {
        match *self {}
    }

    fn stop(&mut self, _key: &AttemptKey) -> Result<(), Error> {
        match *self {}
    }

    fn forget(&mut self, _key: &AttemptKey) -> Result<(), Error> {
        match *self {}
    }

    fn cordon(&mut self, _host: &str, _: &str) -> Result<(), Error> {
        match *self {}
    }

    fn uncordon(&mut self, _host: &str) -> Result<(), Error> {
        match *self {}
    }

    fn read_log(
        &self,
        _key: &AttemptKey,
        _offset: u64,
        _bytes_max: usize,
    ) -> Result<LogChunk, Error> {
        match *self {}
    }
}
