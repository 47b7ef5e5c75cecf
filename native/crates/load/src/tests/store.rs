//! A store in memory that does what Swift does, for the simulated world.

use std::collections::BTreeMap;

use super::simulated::Request;

#[derive(Debug, Default)]
pub(crate) struct Store {
    /// By path.
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
    pub(crate) containers: BTreeMap<String, ()>,
    /// Requests so far.
    pub(crate) asked: u64,
}

pub(crate) fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nX-Trans-Id: tx\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

impl Store {
    /// The answer to a request.
    pub(crate) fn serve(&mut self, request: &Request) -> Vec<u8> {
        self.asked += 1;
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let is_object = path.matches('/').count() == 4;
        match (request.method.as_str(), is_object) {
            ("PUT", true) if !self.containers.contains_key(path.rsplit_once('/').unwrap().0) => {
                answer("404 Not Found", b"")
            }
            ("PUT", true) => {
                self.objects.insert(path.to_owned(), request.body.clone());
                answer("201 Created", b"")
            }
            ("PUT", false) => {
                self.containers.insert(path.to_owned(), ());
                answer("201 Created", b"")
            }
            ("GET", true) => {
                self.objects.get(path).map_or(answer("404 Not Found", b"<html>"), |body| answer("200 OK", body))
            }
            ("HEAD", true) => match self.objects.get(path) {
                Some(body) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes(),
                None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n".to_vec(),
            },
            ("DELETE", true) => match self.objects.remove(path) {
                Some(_) => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
                None => answer("404 Not Found", b""),
            },
            ("DELETE", false) => match self.containers.remove(path) {
                Some(()) => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
                None => answer("404 Not Found", b""),
            },
            ("GET", false) => {
                let (limit, marker) = query.split_once('&').unwrap();
                let limit: usize = limit.strip_prefix("limit=").unwrap().parse().unwrap();
                let marker = format!("{path}/{}", marker.strip_prefix("marker=").unwrap());
                let names: String = self.listed(path, &marker).take(limit).map(|name| format!("{name}\n")).collect();
                if names.is_empty() { answer("204 No Content", b"") } else { answer("200 OK", names.as_bytes()) }
            }
            other => panic!("{other:?}"),
        }
    }

    fn listed(&self, container: &str, marker: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{container}/");
        let behind = self.objects.range::<str, _>((std::ops::Bound::Excluded(marker), std::ops::Bound::Unbounded));
        behind.filter_map(move |(path, _)| path.strip_prefix(&prefix))
    }
}
