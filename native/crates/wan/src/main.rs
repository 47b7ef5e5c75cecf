//! `swiftlet-wan SOCKET [SEED]`: run the router, with its commands at the path SOCKET.

use std::path::Path;
use std::process::ExitCode;

use swiftlet_wan::Router;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seed = match arguments.get(1).map(|text| text.parse()) {
        None => 1,
        Some(Ok(seed)) => seed,
        Some(Err(_)) => return usage(),
    };
    let Some(path) = arguments.first().filter(|_| arguments.len() <= 2) else { return usage() };
    match Router::new(Path::new(path), seed).and_then(|mut router| router.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swiftlet-wan: {path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: swiftlet-wan SOCKET [SEED]");
    ExitCode::from(2)
}
