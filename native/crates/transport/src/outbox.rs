//! What is to be written to one link: bytes of our own, parts of chunks, parts of files.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use crate::link::{Link, unless_blocked};
use crate::pool::Chunk;

/// Our own bytes are collected in pieces of up to this size.
const PIECE_BYTES: usize = 32 << 10;
/// Slices in one system call.
const SLICES: usize = 64;

enum Segment {
    Bytes(Vec<u8>),
    Chunk(Chunk),
    File(Arc<File>, u64, usize),
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Chunk(chunk) => chunk.len(),
            Segment::File(_, _, bytes) => *bytes,
        }
    }
}

/// The queue; its users keep it short.
#[derive(Default)]
pub(crate) struct Outbox {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that were written.
    done: usize,
    bytes: usize,
}

impl Outbox {
    /// How many bytes are queued.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Append bytes; they are counted by what `write` adds.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let fits = matches!(self.segments.back(), Some(Segment::Bytes(bytes)) if bytes.len() < PIECE_BYTES);
        if !fits {
            self.segments.push_back(Segment::Bytes(Vec::with_capacity(256)));
        }
        if let Some(Segment::Bytes(bytes)) = self.segments.back_mut() {
            let before = bytes.len();
            write(bytes);
            self.bytes += bytes.len() - before;
        }
    }

    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.len();
        self.segments.push_back(Segment::Chunk(chunk));
    }

    /// Append the body after its frame, if it has one.
    pub(crate) fn extend(&mut self, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            self.push(chunk);
        }
    }

    pub(crate) fn push_file(&mut self, file: Arc<File>, offset: u64, bytes: usize) {
        self.bytes += bytes;
        self.segments.push_back(Segment::File(file, offset, bytes));
    }

    /// Write once. Returns how many bytes; 0 if the link is full.
    pub(crate) fn write(&mut self, link: &mut dyn Link) -> io::Result<usize> {
        if let Some(Segment::File(file, offset, bytes)) = self.segments.front() {
            let (at, left) = (offset + self.done as u64, bytes - self.done);
            let Some(written) = unless_blocked(link.write_file(file.as_fd(), at, left))? else { return Ok(0) };
            if written == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than announced"));
            }
            self.gone(written);
            return Ok(written);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        let mut more = false;
        for (at, segment) in self.segments.iter().enumerate() {
            let bytes: &[u8] = match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Chunk(chunk) => chunk,
                Segment::File(..) => {
                    more = true;
                    break;
                }
            };
            if count == SLICES {
                break;
            }
            slices[count] = IoSlice::new(if at == 0 { &bytes[self.done..] } else { bytes });
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let written = unless_blocked(link.write(&slices[..count], more))?.unwrap_or(0);
        self.gone(written);
        Ok(written)
    }

    fn gone(&mut self, mut bytes: usize) {
        self.bytes -= bytes;
        while let Some(first) = self.segments.front() {
            let left = first.len() - self.done;
            if bytes < left {
                break;
            }
            bytes -= left;
            self.done = 0;
            self.segments.pop_front();
        }
        self.done += bytes;
    }
}
