//! Receiving the long body of a PUT into its memory, from the kernel without another copy.
//!
//! Fault model: clients may send at any pace, stop, and go away at any byte. What has come is then handed over.

use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::connection::{Connection, Read};

/// The most that is received before others get their turn.
const TURN_BYTES: usize = 256 << 10;

/// What has become of a body.
pub(crate) enum Come {
    /// It is complete.
    Whole,
    /// There may be more, once others have had their turn.
    More,
    /// Nothing more has come yet.
    Nothing,
    /// No more will come.
    End,
}

impl Connection {
    /// The bytes of a long body, once it is complete, if they are one piece.
    pub(crate) fn only_piece(&self) -> Option<&[u8]> {
        Some(&self.body.as_ref()?.only_piece()?[..])
    }

    /// Whether a long body is complete.
    pub(crate) fn has_long_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.is_whole())
    }

    /// Receive more of the body that was begun.
    pub(crate) fn receive_body(&mut self, scratch: &mut [u8]) -> Come {
        let mut left = TURN_BYTES;
        while let Some(mut body) = self.body.take() {
            if body.is_whole() {
                self.body = Some(body);
                return Come::Whole;
            }
            let head = body.head;
            let bytes = if self.read.len() > head {
                // What came with the head, or what was encrypted.
                let room = body.room();
                let bytes = room.len().min(self.read.len() - head);
                room[..bytes].copy_from_slice(&self.read[head..head + bytes]);
                self.read.drain(head..head + bytes);
                bytes
            } else if left == 0 {
                self.body = Some(body);
                return Come::More;
            } else if !self.readable {
                self.body = Some(body);
                return Come::Nothing;
            } else if self.link.tls.is_some() {
                self.body = Some(body);
                match self.fill_from(scratch) {
                    Read::Some => {}
                    Read::Nothing => return Come::Nothing,
                    Read::End => return Come::End,
                }
                left = left.saturating_sub(self.read.len() - head);
                continue;
            } else {
                let room = body.room();
                let count = room.len().min(left);
                match rustix::net::recv(&self.link.socket, &mut room[..count], RecvFlags::empty()) {
                    Ok((bytes, _)) if bytes > 0 => {
                        // As in `fill_from`: a short read has emptied it.
                        self.readable = bytes == count || self.ended;
                        left -= bytes;
                        bytes
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {
                        self.readable = false;
                        0
                    }
                    _ => {
                        self.body = Some(body);
                        return Come::End;
                    }
                }
            };
            if bytes > 0 {
                self.active = Instant::now();
            }
            body.filled(bytes);
            self.body = Some(body);
        }
        Come::Nothing
    }

    /// Put what has come of a body behind its head, where whoever goes on expects it.
    pub(crate) fn put_body_back(&mut self) {
        if let Some(body) = self.body.take() {
            let rest = self.read.split_off(body.head);
            body.put_into(&mut self.read);
            self.read.extend_from_slice(&rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::time::Duration;

    use swiftlet_hash::beside::Threads;
    use swiftlet_hash::{md5, xxh3_64, xxh3_128};
    use swiftlet_transport::Pool;

    use super::*;
    use crate::body::{Body, Content, PATIENCE};
    use crate::head::PIECE;

    const HEAD: &[u8] = b"PUT\r\n\r\n";

    /// A connection that has read the head, and what came with it, and the client's end.
    fn connected(came: &[u8]) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("somebody listens");
        let (socket, _) = listener.accept().expect("a client");
        socket.set_nonblocking(true).expect("a socket");
        let mut connection = Connection::new(socket.into(), 0, None, Instant::now()).expect("a connected socket");
        connection.read = [HEAD, came].concat();
        (connection, client)
    }

    /// Receive until it is complete, or, with `enough`, until so many bytes have come.
    fn receive(connection: &mut Connection, enough: Option<u64>) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            // Nobody tells of more here.
            connection.readable = true;
            match connection.receive_body(&mut [0; 1000]) {
                Come::Whole => return,
                Come::End => panic!("the client is there"),
                _ if enough == connection.body.as_ref().map(|body| body.come_bytes()) => return,
                _ => assert!(Instant::now() < end, "too little comes"),
            }
        }
    }

    #[test]
    fn a_long_body_is_digested_and_what_follows_it_is_kept() {
        let pool = Pool::new(9 << 20).expect("memory");
        let data: Vec<u8> = (0..700_000_u32).map(|number| (number % 251) as u8).collect();
        for at_once in [0, 5, data.len(), data.len() + 4] {
            let sent = [&data, &b"NEXT"[..]].concat();
            let (mut connection, mut client) = connected(&sent[..at_once]);
            let body = Body::begin(&pool, HEAD.len(), data.len(), Instant::now()).expect("memory");
            connection.body = Some(Box::new(body));
            let rest = sent[at_once..].to_vec();
            let sending = std::thread::spawn(move || client.write_all(&rest).map(|()| client));
            receive(&mut connection, None);
            let content = Content::of(&connection.read, connection.body.as_deref(), (HEAD.len(), data.len()), None);
            let content = content.expect("it is complete");
            assert_eq!(
                (content.md5(), content.xxh3_64(), content.xxh3_128()),
                (md5(&data), xxh3_64(&data), xxh3_128(&data))
            );
            assert!(
                content.pieces()[0][..] == data[..] && content.read_bytes() == 0 && content.pieces()[0].is_in(&pool)
            );
            connection.put_body_back();
            let all = [HEAD, &data, &b"NEXT"[..if at_once > data.len() { 4 } else { 0 }]].concat();
            assert!(connection.read == all && connection.body.is_none());
            drop(connection);
            assert_eq!(pool.stat().used_bytes, 0);
            drop(sending.join().expect("a thread"));
        }
    }

    #[test]
    fn a_body_of_several_pieces_is_digested_beside() {
        let pool = Pool::new(16 << 20).expect("memory");
        let threads = Threads::start(1).expect("a thread");
        let data: Vec<u8> = (0..(2 * PIECE + 12_345) as u32).map(|number| (number % 251) as u8).collect();
        for at_once in [0, 5, PIECE, PIECE + 1, data.len() + 4] {
            let sent = [&data, &b"NEXT"[..]].concat();
            let (mut connection, mut client) = connected(&sent[..at_once]);
            let (tell, told) = mpsc::channel();
            let body = Body::begin(&pool, HEAD.len(), data.len(), Instant::now()).expect("memory");
            let body = body.digested_by(&threads, Box::new(move || tell.send(()).expect("somebody is told")));
            assert!(pool.stat().used_bytes >= data.len(), "it never waits for memory in the middle");
            connection.body = Some(Box::new(body));
            let rest = sent[at_once..].to_vec();
            let sending = std::thread::spawn(move || client.write_all(&rest).map(|()| client));
            receive(&mut connection, None);
            told.recv_timeout(Duration::from_secs(60)).expect("the last piece is digested");
            let body = connection.body.as_deref().expect("a body");
            assert!(body.is_whole() && !body.is_being_digested() && connection.only_piece().is_none());
            let content = Content::of(&connection.read, Some(body), (HEAD.len(), data.len()), None);
            let content = content.expect("it is complete");
            assert_eq!(
                (content.md5(), content.xxh3_64(), content.xxh3_128()),
                (md5(&data), xxh3_64(&data), xxh3_128(&data))
            );
            assert_eq!((content.len(), content.read_bytes()), (data.len(), 0));
            let pieces = content.pieces();
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE && piece.is_in(&pool)));
            assert!(pieces.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>() == data);
            drop(pieces);
            connection.put_body_back();
            let all = [HEAD, &data, &b"NEXT"[..if at_once > data.len() { 4 } else { 0 }]].concat();
            assert!(connection.read == all && connection.body.is_none());
            drop(connection);
            drop(sending.join().expect("a thread"));
        }
        drop(threads);
        assert_eq!(pool.stat().used_bytes, 0);
    }

    #[test]
    fn who_will_not_send_it_in_time_is_known_soon() {
        let pool = Pool::new(16 << 20).expect("memory");
        let now = Instant::now();
        let mut body = Body::begin(&pool, 0, 4 * PIECE, now).expect("memory");
        body.filled(PIECE);
        body.filled(PIECE);
        // Half has come: in time if that has taken half of the time.
        for (share, late) in [(0.2, false), (0.49, false), (0.51, true), (1.1, true)] {
            assert_eq!(body.is_late(now + PATIENCE.mul_f64(share)), late, "{share}");
        }
        let begun = Body::begin(&pool, 0, 2 * PIECE, now).expect("memory");
        assert!(!begun.is_late(now + Duration::from_millis(400)), "nobody knows yet");
        let mut short = Body::begin(&pool, 0, PIECE, now).expect("memory");
        short.filled(1);
        assert!(!short.is_late(now + PATIENCE) && short.is_late(now + PATIENCE * 2));
        assert!(Body::begin(&pool, 0, 8 * PIECE, now).is_none(), "there is too little memory");
        drop((body, begun, short));
        assert_eq!(pool.stat().used_bytes, 0);
    }

    #[test]
    fn what_has_come_of_a_body_is_handed_over() {
        let pool = Pool::new(9 << 20).expect("memory");
        let (mut connection, mut client) = connected(b"12");
        let now = Instant::now();
        let body = Body::begin(&pool, HEAD.len(), 100_000, now).expect("memory");
        assert!(!body.is_late(now + PATIENCE) && body.is_late(now + PATIENCE * 2));
        connection.body = Some(Box::new(body));
        client.write_all(b"345").expect("room in the kernel");
        receive(&mut connection, Some(5));
        assert!(Content::of(&connection.read, connection.body.as_deref(), (HEAD.len(), 100_000), None).is_none());
        connection.put_body_back();
        assert_eq!(connection.read, [HEAD, b"12345"].concat());
        let all: Vec<_> = std::iter::from_fn(|| pool.spare(1 << 20)).collect();
        assert!(Body::begin(&pool, 0, 100_000, now).is_none(), "no memory: {}", all.len());
    }
}
