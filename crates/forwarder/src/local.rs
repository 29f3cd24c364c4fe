//! What a forwarder tells programs on its own machine: metrics over HTTP, and captures over a socket that only its user can
//! open.
//!
//! ```text
//! GET /metrics                                                       at both; HEAD too, for its headers alone
//! GET /capture?port=wan&chain=acme/web&snap=128&count=100&seconds=10 at the socket; every part may be left out
//! ```
//! Packets are confidential and metrics are not, so captures are never served over TCP.

use crate::capture::{Capture, Filter, LARGEST_SNAP_LENGTH, SNAP_LENGTH, Writer};
use crate::metrics;
use crate::workers::Workers;
use contracts::forwarder as contract;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take to ask, and to take what it gets.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients of the metrics that are served at once.
const CLIENTS: usize = 8;
/// Bytes of a request at most.
const LONGEST_REQUEST: usize = 4_096;
/// Seconds of a capture unless told otherwise, and at most.
const SECONDS: u64 = 60;
const LONGEST_CAPTURE: u64 = 3_600;

/// The last report, and the rules that name what is in it.
#[derive(Debug, Default)]
pub struct Latest {
    report: Mutex<(contract::Status, Arc<contract::RuleSet>)>,
}

impl Latest {
    /// Replaces it.
    pub fn tell(&self, status: contract::Status, rules: &contract::RuleSet) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if report.1.generation != rules.generation {
            report.1 = Arc::new(rules.clone());
        }
        report.0 = status;
    }

    /// Refuses a filter with a port or chain that is not in the rules: nothing would match.
    fn check(&self, filter: &Filter) -> Result<(), String> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = report.1.clone();
        drop(report);
        if let Some(port) = &filter.port
            && !rules.ports.iter().any(|known| &known.name == port)
        {
            let known = rules.ports.iter().map(|port| port.name.clone());
            return Err(format!("port: {port:?} is none; {}", choice(known)));
        }
        if let Some((customer, chain)) = &filter.chain
            && !rules
                .paths
                .iter()
                .any(|path| (&path.customer, &path.chain) == (customer, chain))
        {
            let path = |path: &contract::ServicePath| format!("{}/{}", path.customer, path.chain);
            let known = rules.paths.iter().map(path);
            let problem = format!("chain: {customer}/{chain} is not here; {}", choice(known));
            return Err(problem);
        }
        Ok(())
    }

    fn metrics(&self) -> String {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, rules) = report.clone();
        drop(report);
        metrics::render(&status, &rules)
    }
}

/// What may be written instead.
fn choice(names: impl Iterator<Item = String>) -> String {
    let names: BTreeSet<String> = names.collect();
    match names.is_empty() {
        true => "there is none".to_string(),
        false => format!("use {}", Vec::from_iter(names).join(", ")),
    }
}

/// Serves metrics, to a few clients at once, for as long as the process lives. A client that is slow is nobody else's
/// concern; one that comes when as many are being served is sent away. Returns where they are served.
///
/// # Errors
/// The address cannot be listened on, or the thread does not start.
pub fn serve_metrics(address: &str, latest: Arc<Latest>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    thread::Builder::new()
        .name("metrics".to_string())
        .spawn(move || {
            let clients = Arc::new(());
            for mut stream in listener.incoming().flatten() {
                // Each client holds one, and this thread does.
                let (client, latest) = (clients.clone(), latest.clone());
                if Arc::strong_count(&clients) >= CLIENTS + 2 {
                    let _ = stream.set_write_timeout(Some(PATIENCE));
                    let _ = refuse(
                        &mut stream,
                        Method::Get,
                        "503 Service Unavailable",
                        "too many clients",
                    );
                    continue;
                }
                // A client that went away is no matter, nor one that gets no thread.
                let _ = thread::Builder::new()
                    .name("metrics-client".to_string())
                    .spawn(move || {
                        let _ = answer_metrics(stream, &latest);
                        drop(client);
                    });
            }
        })?;
    Ok(address)
}

fn answer_metrics(mut stream: TcpStream, latest: &Latest) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(Asked { method, target }) = read_request(&mut stream)? else {
        return refuse(&mut stream, Method::Get, "400 Bad Request", "GET /metrics");
    };
    // What is behind a question mark asks for nothing else.
    match (method, target.split('?').next()) {
        (Method::Other, _) => refuse(&mut stream, method, NOT_ALLOWED, "GET /metrics"),
        (_, Some("/metrics")) => write_metrics(&mut stream, method, latest),
        _ => refuse(
            &mut stream,
            method,
            "404 Not Found",
            "only /metrics is served here",
        ),
    }
}

fn write_metrics(stream: &mut impl Write, method: Method, latest: &Latest) -> io::Result<()> {
    let status = "200 OK\r\nContent-Type: text/plain; version=0.0.4";
    respond(stream, method, status, &latest.metrics())
}

fn refuse(stream: &mut impl Write, method: Method, status: &str, sentence: &str) -> io::Result<()> {
    let status = format!("{status}\r\nContent-Type: text/plain");
    respond(stream, method, &status, &format!("{sentence}\n"))
}

/// Writes a response; `head` is its status and what is to be said of the content.
fn respond(stream: &mut impl Write, method: Method, head: &str, content: &str) -> io::Result<()> {
    let length = content.len();
    write!(
        stream,
        "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    match method {
        Method::Head => Ok(()),
        _ => stream.write_all(content.as_bytes()),
    }
}

/// A method that is not served.
const NOT_ALLOWED: &str = "405 Method Not Allowed\r\nAllow: GET, HEAD";

/// What a request asks to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Get,
    /// As [`Method::Get`], and to leave out the content (RFC 9110, section 9.3.2).
    Head,
    Other,
}

/// A request.
struct Asked {
    method: Method,
    target: String,
}

/// Reads a request; nothing if it is none.
fn read_request(stream: &mut impl Read) -> io::Result<Option<Asked>> {
    let mut bytes = Vec::new();
    let until = Instant::now() + PATIENCE;
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut more = [0; 512];
        let count = stream.read(&mut more)?;
        bytes.extend_from_slice(&more[..count]);
        if count == 0 || bytes.len() > LONGEST_REQUEST || Instant::now() > until {
            return Ok(None);
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    Ok(Some(Asked {
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        },
        target: target.to_string(),
    }))
}

/// Serves captures and metrics at a socket that only this process's user can open, for as long as the process lives.
///
/// # Errors
/// The socket cannot be made, something else is in its place, or the thread does not start.
pub fn serve_captures(path: &Path, latest: Arc<Latest>, workers: Workers) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            let problem = format!("{}: there is something that is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        Err(_) => {}
    }
    // Nobody else can open it meanwhile: it gets its name when its mode is set.
    let unfinished = path.with_extension("new");
    let _ = fs::remove_file(&unfinished);
    let listener = UnixListener::bind(&unfinished)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o600))?;
    fs::rename(&unfinished, path)?;
    thread::Builder::new()
        .name("captures".to_string())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let (latest, workers) = (latest.clone(), workers.clone());
                // A client that went away is no matter, nor one that gets no thread.
                let _ = thread::Builder::new()
                    .name("capture".to_string())
                    .spawn(move || answer_capture(stream, &latest, &workers));
            }
        })?;
    Ok(())
}

fn answer_capture(mut stream: UnixStream, latest: &Latest, workers: &Workers) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(Asked { method, target }) = read_request(&mut stream)? else {
        return refuse(
            &mut stream,
            Method::Get,
            "400 Bad Request",
            "GET /metrics or /capture",
        );
    };
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    match (method, path) {
        (Method::Get | Method::Head, "/metrics") => write_metrics(&mut stream, method, latest),
        (Method::Get, "/capture") => match Wanted::parse(query)
            .and_then(|wanted| latest.check(&wanted.filter).map(|()| wanted))
        {
            Ok(wanted) => capture(&mut stream, workers, wanted),
            Err(problem) => refuse(&mut stream, method, "400 Bad Request", &problem),
        },
        (Method::Other, _) => refuse(&mut stream, method, NOT_ALLOWED, "GET /metrics or /capture"),
        _ => refuse(
            &mut stream,
            method,
            "404 Not Found",
            "GET /metrics or /capture",
        ),
    }
}

/// A capture as asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    filter: Filter,
    snap: usize,
    count: u64,
    seconds: u64,
}

impl Wanted {
    fn parse(query: &str) -> Result<Wanted, String> {
        let mut wanted = Wanted {
            filter: Filter::default(),
            snap: SNAP_LENGTH,
            count: u64::MAX,
            seconds: SECONDS,
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or(format!("{part}: write {part}=VALUE"))?;
            let number = || {
                let parsed = value.parse::<u64>().ok().filter(|&number| number > 0);
                parsed.ok_or(format!("{name}: {value:?} is no number above 0"))
            };
            let at_most = |limit: u64| match number()? {
                number if number > limit => Err(format!("{name}: {number} is more than {limit}")),
                number => Ok(number),
            };
            match name {
                "port" => wanted.filter.port = Some(value.to_string()),
                "chain" => {
                    let names = value.split_once('/');
                    let (customer, chain) =
                        names.ok_or(format!("chain: write CUSTOMER/CHAIN, not {value:?}"))?;
                    wanted.filter.chain = Some((customer.to_string(), chain.to_string()));
                }
                "snap" => wanted.snap = at_most(LARGEST_SNAP_LENGTH as u64)? as usize,
                "count" => wanted.count = number()?,
                "seconds" => wanted.seconds = at_most(LONGEST_CAPTURE)?,
                _ => return Err(format!("{name}: use port, chain, snap, count or seconds")),
            }
        }
        Ok(wanted)
    }
}

fn capture(stream: &mut UnixStream, workers: &Workers, wanted: Wanted) -> io::Result<()> {
    let (capture, mut captures) = Capture::new(wanted.filter, wanted.snap);
    if workers.capture(&capture).is_err() {
        return refuse(
            stream,
            Method::Get,
            "503 Service Unavailable",
            "a worker has ended",
        );
    }
    // The workers' ends alone keep it open.
    drop(capture);
    let mut writer = Writer::new(wanted.snap);
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-pcapng\r\nConnection: close\r\n\r\n",
    )?;
    stream.write_all(&writer.begin())?;
    let until = Instant::now() + Duration::from_secs(wanted.seconds);
    let mut left = wanted.count;
    while left > 0 {
        let time = until.saturating_duration_since(Instant::now());
        match captures.next_within(time.min(PATIENCE)) {
            Ok(captured) => {
                stream.write_all(&writer.packet(&captured))?;
                left -= 1;
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            // Time is over, or another capture has begun.
            Err(_) => break,
        }
    }
    if captures.lost() > 0 {
        eprintln!(
            "switchboard-forwarder: a capture left out {} packets: its reader was too slow",
            captures.lost()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_as_asked_for_and_wrong_words_name_what_is_right() {
        let wanted = Wanted::parse("port=wan&chain=acme/web&snap=96&count=5&seconds=3").unwrap();
        assert_eq!(wanted.filter.port.as_deref(), Some("wan"));
        let chain = ("acme".to_string(), "web".to_string());
        assert_eq!(wanted.filter.chain, Some(chain));
        assert_eq!((wanted.snap, wanted.count, wanted.seconds), (96, 5, 3));
        for (query, problem) in [
            ("snap=0", "snap: \"0\" is no number above 0"),
            ("snap=9217", "snap: 9217 is more than 9216"),
            ("seconds=99999", "seconds: 99999 is more than 3600"),
            ("chain=web", "chain: write CUSTOMER/CHAIN, not \"web\""),
            (
                "colour=red",
                "colour: use port, chain, snap, count or seconds",
            ),
            ("port", "port: write port=VALUE"),
        ] {
            assert_eq!(Wanted::parse(query).unwrap_err(), problem);
        }
    }

    #[test]
    fn metrics_are_served_and_nothing_else_is_over_tcp() {
        let latest = Arc::new(Latest::default());
        latest.tell(
            contract::Status {
                flow_entries: 42,
                ..Default::default()
            },
            &contract::RuleSet::default(),
        );
        let ask = |asked: &str| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            write!(client, "{asked} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            answer_metrics(listener.accept().unwrap().0, &latest).unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        let metrics = ask("GET /metrics");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(
            metrics.contains("switchboard_forwarder_flow_entries 42\n"),
            "{metrics}"
        );
        assert_eq!(ask("GET /metrics?name=all"), metrics);
        let capture = ask("GET /capture");
        assert!(capture.starts_with("HTTP/1.1 404 "), "{capture}");
        // Its headers alone, which tell the length of what is left out.
        let (headers, _) = metrics.split_once("\r\n\r\n").unwrap();
        assert_eq!(ask("HEAD /metrics"), format!("{headers}\r\n\r\n"));
        let posted = ask("POST /metrics");
        assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
    }

    #[test]
    fn a_capture_of_what_is_not_there_is_refused_with_what_is() {
        let latest = Latest::default();
        let check = |latest: &Latest, query: &str| latest.check(&Wanted::parse(query)?.filter);
        let nothing = Err("port: \"wan\" is none; there is none".to_string());
        assert_eq!(check(&latest, "port=wan"), nothing);
        let port = |name: &str| contract::Port {
            name: name.into(),
            ..Default::default()
        };
        let path = |chain: &str| contract::ServicePath {
            customer: "acme".into(),
            chain: chain.into(),
            ..Default::default()
        };
        let rules = contract::RuleSet {
            generation: 1,
            ports: vec![port("wan"), port("lan")],
            paths: vec![path("web"), path("mail"), path("web")],
            ..Default::default()
        };
        latest.tell(contract::Status::default(), &rules);
        for query in ["", "port=wan", "chain=acme/web&port=lan"] {
            assert_eq!(check(&latest, query), Ok(()), "{query}");
        }
        for (query, problem) in [
            ("port=vpn", "port: \"vpn\" is none; use lan, wan"),
            (
                "chain=other/web",
                "chain: other/web is not here; use acme/mail, acme/web",
            ),
        ] {
            assert_eq!(check(&latest, query), Err(problem.to_string()));
        }
    }

    #[test]
    fn clients_that_say_nothing_hold_nobody_up() {
        let address = serve_metrics("127.0.0.1:0", Arc::new(Latest::default())).unwrap();
        let ask = || {
            let mut client = TcpStream::connect(address).unwrap();
            let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            let mut answer = String::new();
            let _ = client.read_to_string(&mut answer);
            answer
        };
        let silent: Vec<TcpStream> = (1..CLIENTS)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let start = Instant::now();
        let answer = ask();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
        // One after the other they would take all their patience.
        let all = PATIENCE * (CLIENTS as u32 - 2);
        assert!(start.elapsed() < all, "it waited for silent clients");
        drop(silent);
    }
}
