//! A client that speaks the protocol by hand over a blocking stream, so as to break its rules.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use swiftlet_transport::Carrier;
use swiftlet_wire::frame::{Decoder, Encoder, Found, Head, Kind};
use swiftlet_wire::handshake::{Client, Credentials, Identity, Limits, VERSIONS};
use swiftlet_wire::limits::HEAD_BYTES;

use super::{LONG, World, keys, socket_path, tls};

pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// TLS over a blocking stream.
struct TlsStream {
    tls: rustls::Connection,
    stream: TcpStream,
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.tls.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Cut without a word, as by all who end.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            self.tls.read_tls(&mut self.stream)?;
            self.tls.process_new_packets().map_err(std::io::Error::other)?;
            self.flush()?;
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        while self.tls.is_handshaking() {
            self.tls.complete_io(&mut self.stream)?;
        }
        let taken = self.tls.writer().write(from)?;
        self.flush()?;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream)?;
        }
        Ok(())
    }
}

pub struct Raw {
    pub stream: Box<dyn Stream>,
    /// The same stream where descriptors can be passed.
    local: Option<UnixStream>,
    pub encoder: Encoder,
    decoder: Decoder,
    received: Vec<u8>,
    /// All that was sent so far.
    pub record: Vec<u8>,
}

pub fn connect(world: &World, name: &str) -> Raw {
    // Not as long as nodes that are not about silence wait: who is to close at once has not waited for that.
    let patience = Some(LONG / 2);
    let mut local = None;
    let stream: Box<dyn Stream> = match world.carrier {
        Carrier::SameNode => {
            let stream = UnixStream::connect(socket_path(&world.directory, name)).unwrap();
            stream.set_read_timeout(patience).unwrap();
            local = Some(stream.try_clone().unwrap());
            Box::new(stream)
        }
        Carrier::Simulated => {
            let stream = world.network.connect(name).unwrap();
            stream.set_read_timeout(patience).unwrap();
            Box::new(stream)
        }
        Carrier::Tls => {
            let stream = TcpStream::connect(world.address(name).tcp.unwrap()).unwrap();
            stream.set_read_timeout(patience).unwrap();
            Box::new(TlsStream { tls: tls(&["secret"]).client().unwrap(), stream })
        }
        _ => {
            let stream = TcpStream::connect(world.address(name).tcp.unwrap()).unwrap();
            stream.set_read_timeout(patience).unwrap();
            Box::new(stream)
        }
    };
    let (encoder, decoder) = (Encoder::default(), Decoder::default());
    Raw { stream, local, encoder, decoder, received: Vec::new(), record: Vec::new() }
}

impl Raw {
    pub fn send(&mut self, bytes: &[u8]) {
        self.record.extend_from_slice(bytes);
        // The server may have closed already, which is what some tests are about.
        let _ = self.stream.write_all(bytes);
    }

    pub fn frame(&mut self, kind: Kind, flags: u8, stream: u64, meta: &[u8]) {
        let mut bytes = Vec::new();
        self.encoder.encode(&mut bytes, kind, flags, stream, &[meta], 0);
        self.send(&bytes);
    }

    /// A frame with a body.
    pub fn data(&mut self, flags: u8, stream: u64, offset: u64, body: &[u8]) {
        let mut bytes = Vec::new();
        self.encoder.encode(&mut bytes, Kind::Data, flags, stream, &[&offset.to_be_bytes()], body.len());
        bytes.extend_from_slice(body);
        self.send(&bytes);
    }

    /// A frame with which a descriptor is passed.
    pub fn frame_with(&mut self, kind: Kind, meta: &[u8], descriptor: BorrowedFd<'_>) {
        let mut bytes = Vec::new();
        self.encoder.encode(&mut bytes, kind, 0, 0, &[meta], 0);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let socket = self.local.as_ref().expect("a local socket");
        let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// The next frame, its meta part and body; `None` when the server has closed.
    pub fn next(&mut self) -> Option<(Head, Vec<u8>, Vec<u8>)> {
        loop {
            if let Ok(Found::Frame(head, meta)) = self.decoder.clone().next(&self.received) {
                let meta = meta.to_vec();
                let body = HEAD_BYTES + head.meta_bytes;
                if self.received.len() >= body + head.body_bytes {
                    drop(self.decoder.next(&self.received));
                    let body_bytes = self.received[body..body + head.body_bytes].to_vec();
                    self.received.drain(..body + head.body_bytes);
                    return Some((head, meta, body_bytes));
                }
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the server does not close: {error}"),
            }
        }
    }

    /// The next frame that is not about the connection itself.
    pub fn next_of_stream(&mut self) -> Option<(Head, Vec<u8>, Vec<u8>)> {
        loop {
            let next = self.next()?;
            if next.0.stream != 0 {
                return Some(next);
            }
        }
    }

    /// A proper handshake.
    pub fn shake_hands(&mut self, server: &str) {
        self.shake_hands_by(Credentials::Member(keys(&["secret"])), server, false);
    }

    /// The same by other credentials; `lent`: saying that lent chunks are taken.
    pub fn shake_hands_by(&mut self, credentials: Credentials, server: &str, lent: bool) {
        self.shake_hands_up_to(VERSIONS.1, credentials, server, lent);
    }

    /// The same as a program that speaks the protocol up to a version.
    pub fn shake_hands_up_to(&mut self, highest: u16, credentials: Credentials, server: &str, lent: bool) {
        let limits = Limits { window_bytes: 1 << 20, lent, streams: 100, inline_bytes: 1 << 20 };
        let us = Identity { name: "raw".to_owned(), machine: "machine".to_owned(), limits };
        let (client, hello) = Client::up_to(highest, credentials, &us, server, &[7; 32]);
        self.frame(Kind::Hello, 0, 0, &hello);
        let (head, welcome, _) = self.next().expect("an answer");
        assert_eq!(head.kind, Kind::Welcome);
        let (agreed, proof) = client.welcomed(&welcome).expect("the key");
        self.frame(Kind::Proof, 0, 0, &proof);
        self.encoder.begin_session(agreed.session);
        self.decoder.begin_session(agreed.session);
    }
}
