//! Names that change between two look-ups, by a DNS server of the test's own.
//!
//! The name's owner wants the client to judge one address and dial another. What may be called is 127.0.0.1; behind the
//! same port of 127.0.0.2 stands who must never be reached.
#![cfg(target_os = "linux")] // Elsewhere 127.0.0.2 is no address of the machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::*;

const GOOD: &str = "127.0.0.1";
const VICTIM: &str = "127.0.0.2";

/// The types of records (RFC 1035 §3.2.2, RFC 3596 §2.1).
const A: u16 = 1;
const AAAA: u16 = 28;

/// A question's or a record's class: the Internet.
const IN: u16 = 1;

/// A header (RFC 1035 §4.1.1): an id, flags, the numbers of questions and answers, and two of what there is none.
fn header(id: &[u8], flags: u16, questions: u16, answers: u16) -> Vec<u8> {
    let numbers = [flags, questions, answers, 0, 0].map(u16::to_be_bytes);
    [id, &numbers.concat()].concat()
}

/// What the n-th look-up of a name is told, n from 0.
type Script = fn(usize) -> &'static [&'static str];

/// The server: answers each question by the script, with a time to live of 0, and counts the look-ups.
struct Dns {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<u16>>>,
    server: JoinHandle<()>,
}

impl Dns {
    async fn start(script: Script) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<u16>>>::default();
        let noted = asked.clone();
        let server = tokio::spawn(async move {
            let mut packet = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut packet).await.unwrap();
                let question = &packet[12..length];
                let kind = u16::from_be_bytes([question[question.len() - 4], question[question.len() - 3]]);
                let before = {
                    let mut noted = noted.lock().unwrap();
                    noted.push(kind);
                    noted.iter().filter(|one| **one == kind).count() - 1
                };
                let addresses = script(before).iter().map(|ip| ip.parse::<IpAddr>().unwrap());
                let records = addresses.filter_map(|ip| match ip {
                    IpAddr::V4(ip) => (kind == A).then(|| ip.octets().to_vec()),
                    IpAddr::V6(ip) => (kind == AAAA).then(|| ip.octets().to_vec()),
                });
                let records = records.collect::<Vec<_>>();
                let count = u16::try_from(records.len()).unwrap();
                let mut answer = [header(&packet[..2], 0x8180, 1, count), question.to_vec()].concat();
                for data in records {
                    // The name is the question's (a pointer, §4.1.4), and nobody may keep the record.
                    let length = u16::try_from(data.len()).unwrap();
                    answer.extend([0xc00c, kind, IN, 0, 0, length].map(u16::to_be_bytes).concat());
                    answer.extend(data);
                }
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        Self { address, asked, server }
    }

    /// Asks it for both kinds of addresses, as a system's resolver does.
    fn lookup(&self) -> Lookup {
        let address = self.address;
        Arc::new(move |name| {
            Box::pin(async move {
                let mut found = ask(address, &name, A).await?;
                found.extend(ask(address, &name, AAAA).await?);
                Ok(found)
            })
        })
    }

    fn count(&self, kind: u16) -> usize {
        self.asked.lock().unwrap().iter().filter(|one| **one == kind).count()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn ask(server: SocketAddr, name: &str, kind: u16) -> io::Result<Vec<IpAddr>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let mut question = header(&[7, 7], 0x0100, 1, 0);
    for label in name.trim_end_matches('.').split('.') {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.push(0);
    question.extend([kind, IN].map(u16::to_be_bytes).concat());
    socket.send_to(&question, server).await?;
    let mut packet = [0; 512];
    let length = socket.recv(&mut packet).await?;
    let count = usize::from(u16::from_be_bytes([packet[6], packet[7]]));
    let data = if kind == A { 4 } else { 16 };
    let records = packet[question.len()..length].chunks_exact(12 + data).take(count);
    Ok(records
        .map(|record| match <[u8; 4]>::try_from(&record[12..]) {
            Ok(octets) => Ipv4Addr::from(octets).into(),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(&record[12..]).unwrap()),
        })
        .collect())
}

/// Who may be called and who must not be, on one port.
async fn two_at_one_port() -> (TcpListener, TcpListener, u16) {
    loop {
        let good = TcpListener::bind((GOOD, 0)).await.unwrap();
        let port = good.local_addr().unwrap().port();
        // The port may be taken there.
        if let Ok(victim) = TcpListener::bind((VICTIM, port)).await {
            return (good, victim, port);
        }
    }
}

/// Calls a name so many times; how many calls arrived, while nobody came to the victim.
async fn calls(dns: &Dns, times: usize) -> usize {
    let (good, victim, port) = two_at_one_port().await;
    let client = client_where(&["127.0.0.1/32"], dns.lookup());
    let url = format!("http://rebinding.example:{port}/hook");
    let server = async {
        loop {
            answer_once(&good, "HTTP/1.1 204 Done\r\nconnection: close\r\n\r\n").await;
        }
    };
    let calling = async {
        let mut arrived = 0;
        for _ in 0..times {
            match post(&client, &url, ROOMY).await {
                Ok(answer) => arrived += usize::from(answer.status == 204),
                Err(error) => {
                    assert!(matches!(error, CallError::Refused(Refusal::Resolved(_))), "{error:?}");
                    assert!(!error.to_string().contains("127."), "{error}");
                }
            }
        }
        arrived
    };
    tokio::select! {
        biased;
        _ = victim.accept() => panic!("the victim was dialled"),
        () = server => unreachable!("it serves on and on"),
        arrived = calling => arrived,
    }
}

#[tokio::test]
async fn a_name_that_changes_with_every_look_up_is_dialled_where_it_was_judged() {
    let dns = Dns::start(|n| if n % 2 == 0 { &[GOOD] } else { &[VICTIM] }).await;
    assert_eq!(calls(&dns, 40).await, 20);
    // Not looked up a second time between the judgement and the call.
    assert_eq!((dns.count(A), dns.count(AAAA)), (40, 40));
}

#[tokio::test]
async fn a_victim_among_good_addresses_refuses_the_name() {
    let scripts: [Script; 6] = [
        |_| &[GOOD, VICTIM],
        |_| &[VICTIM, GOOD],
        |_| &[GOOD, GOOD, GOOD, VICTIM],
        |_| &[GOOD, "::1"],
        |_| &[GOOD, "::ffff:127.0.0.2"],
        |_| &["64:ff9b::127.0.0.2", GOOD],
    ];
    for script in scripts {
        let dns = Dns::start(script).await;
        assert_eq!(calls(&dns, 3).await, 0);
    }
    let dns = Dns::start(|_| &[GOOD]).await;
    assert_eq!(calls(&dns, 3).await, 3, "the good address alone is called");
}
