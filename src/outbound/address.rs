//! Which addresses may be dialled, and which URLs may be called.
//!
//! Pure: nothing here resolves or connects. An address is judged by IANA's special-purpose registries for
//! [IPv4](https://www.iana.org/assignments/iana-ipv4-special-registry) and
//! [IPv6](https://www.iana.org/assignments/iana-ipv6-special-registry) (RFC 6890): what they do not call globally
//! reachable is refused, and so is IPv6 space that nobody was given. An IPv6 address that carries an IPv4 address to
//! be reached through a translator or tunnel is judged by the IPv4 address.
//!
//! Not seen from here: a translator with a network's own prefix (RFC 6052 §2.2), and a service that a cloud puts on
//! a public address. Who runs on such a network has to stop it there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

use super::port;

#[cfg(test)]
pub(super) mod hostile;
#[cfg(test)]
mod tests;

/// The longest host name in characters, dots between labels included (RFC 1035 §2.3.4).
const NAME_MAX: usize = 253;

/// The longest label of a host name in characters (RFC 1035 §2.3.4).
const LABEL_MAX: usize = 63;

/// What becomes of the addresses of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Globally reachable.
    Public,
    /// Not globally reachable; the text names the rule.
    Refused(&'static str),
    /// As the IPv4 address within is, which ends this many bits before the address's end.
    Inside(u32),
}

use Verdict::{Inside, Public, Refused};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8, verdict: Verdict) -> (Ipv4Net, Verdict) {
    (Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix), verdict)
}

/// `head` are the first four groups, `tail` the last four.
const fn v6(head: [u16; 4], tail: [u16; 4], prefix: u8, verdict: Verdict) -> (Ipv6Net, Verdict) {
    let (h, t) = (head, tail);
    (Ipv6Net::new_assert(Ipv6Addr::new(h[0], h[1], h[2], h[3], t[0], t[1], t[2], t[3]), prefix), verdict)
}

/// The smallest block that holds an address decides; an IPv4 address in none of them is public.
static V4: [(Ipv4Net, Verdict); 18] = [
    v4(0, 0, 0, 0, 8, Refused("\"this network\" (RFC 791 §3.2)")),
    v4(10, 0, 0, 0, 8, Refused("private use (RFC 1918)")),
    v4(100, 64, 0, 0, 10, Refused("shared address space (RFC 6598)")),
    v4(127, 0, 0, 0, 8, Refused("loopback (RFC 1122 §3.2.1.3)")),
    v4(169, 254, 0, 0, 16, Refused("link-local (RFC 3927)")),
    v4(172, 16, 0, 0, 12, Refused("private use (RFC 1918)")),
    v4(192, 0, 0, 0, 24, Refused("IETF protocol assignments (RFC 6890 §2.1)")),
    v4(192, 0, 0, 9, 32, Public),  // port control protocol anycast, RFC 7723
    v4(192, 0, 0, 10, 32, Public), // TURN anycast, RFC 8155
    v4(192, 0, 2, 0, 24, Refused("documentation (RFC 5737)")),
    v4(192, 88, 99, 0, 24, Refused("deprecated 6to4 relay anycast (RFC 7526)")),
    v4(192, 168, 0, 0, 16, Refused("private use (RFC 1918)")),
    v4(198, 18, 0, 0, 15, Refused("benchmarking (RFC 2544)")),
    v4(198, 51, 100, 0, 24, Refused("documentation (RFC 5737)")),
    v4(203, 0, 113, 0, 24, Refused("documentation (RFC 5737)")),
    v4(224, 0, 0, 0, 4, Refused("multicast (RFC 5771)")),
    v4(240, 0, 0, 0, 4, Refused("reserved (RFC 1112 §4)")),
    v4(255, 255, 255, 255, 32, Refused("limited broadcast (RFC 919 §7)")),
];

const Z: [u16; 4] = [0; 4];

/// The smallest block that holds an address decides; the first row holds them all.
static V6: [(Ipv6Net, Verdict); 31] = [
    v6(Z, Z, 0, Refused("not allocated for global unicast (RFC 4291 §2.4)")),
    v6([0x2000, 0, 0, 0], Z, 3, Public), // global unicast, RFC 4291 §2.4 and RFC 3587
    v6(Z, Z, 96, Refused("deprecated IPv4-compatible (RFC 4291 §2.5.5.1)")),
    v6(Z, Z, 128, Refused("unspecified (RFC 4291 §2.5.2)")),
    v6(Z, [0, 0, 0, 1], 128, Refused("loopback (RFC 4291 §2.5.3)")),
    v6(Z, [0, 0xffff, 0, 0], 96, Inside(0)), // IPv4-mapped, RFC 4291 §2.5.5.2
    v6([0x64, 0xff9b, 0, 0], Z, 96, Inside(0)), // NAT64, RFC 6052 §2.1
    v6([0x64, 0xff9b, 1, 0], Z, 48, Refused("local-use translation (RFC 8215)")),
    v6([0x100, 0, 0, 0], Z, 64, Refused("discard-only (RFC 6666)")),
    v6([0x100, 0, 0, 1], Z, 64, Refused("dummy prefix (RFC 9780)")),
    v6([0x2001, 0, 0, 0], Z, 23, Refused("IETF protocol assignments (RFC 2928)")),
    v6([0x2001, 0, 0, 0], Z, 32, Refused("Teredo tunnel (RFC 4380)")),
    v6([0x2001, 1, 0, 0], [0, 0, 0, 1], 128, Public), // port control protocol anycast, RFC 7723
    v6([0x2001, 1, 0, 0], [0, 0, 0, 2], 128, Public), // TURN anycast, RFC 8155
    v6([0x2001, 1, 0, 0], [0, 0, 0, 3], 128, Public), // service registration anycast, RFC 9665
    v6([0x2001, 2, 0, 0], Z, 48, Refused("benchmarking (RFC 5180)")),
    v6([0x2001, 3, 0, 0], Z, 32, Public),     // AMT, RFC 7450
    v6([0x2001, 4, 0x112, 0], Z, 48, Public), // AS112, RFC 7535
    v6([0x2001, 0x10, 0, 0], Z, 28, Refused("deprecated ORCHID (RFC 4843)")),
    v6([0x2001, 0x20, 0, 0], Z, 28, Public), // ORCHIDv2, RFC 7343
    v6([0x2001, 0x30, 0, 0], Z, 28, Public), // drone remote identification, RFC 9374
    v6([0x2001, 0xdb8, 0, 0], Z, 32, Refused("documentation (RFC 3849)")),
    v6([0x2002, 0, 0, 0], Z, 16, Inside(80)), // 6to4, RFC 3056 §2
    v6([0x3ffe, 0, 0, 0], Z, 16, Refused("returned test network (RFC 3701)")),
    v6([0x3fff, 0, 0, 0], Z, 20, Refused("documentation (RFC 9637)")),
    v6([0x5f00, 0, 0, 0], Z, 16, Refused("segment routing identifiers (RFC 9602)")),
    v6([0xfc00, 0, 0, 0], Z, 7, Refused("unique local (RFC 4193)")),
    v6([0xfe80, 0, 0, 0], Z, 10, Refused("link-local (RFC 4291 §2.5.6)")),
    v6([0xfec0, 0, 0, 0], Z, 10, Refused("deprecated site-local (RFC 3879)")),
    v6([0xff00, 0, 0, 0], Z, 8, Refused("multicast (RFC 4291 §2.7)")),
    v6(Z, [0xffff, 0, 0, 0], 96, Refused("deprecated IPv4-translated (RFC 2765 §2.1)")),
];

/// Why an address is not globally reachable: the rule's name with its RFC, or nothing if it is reachable.
#[must_use]
pub fn refusal(ip: IpAddr) -> Option<&'static str> {
    let verdict = match ip {
        IpAddr::V4(ip) => {
            let holding = V4.iter().filter(|(net, _)| net.contains(&ip));
            holding.max_by_key(|(net, _)| net.prefix_len()).map_or(Public, |found| found.1)
        }
        IpAddr::V6(ip) => {
            let holding = V6.iter().filter(|(net, _)| net.contains(&ip));
            holding.max_by_key(|(net, _)| net.prefix_len()).map_or(Public, |found| found.1)
        }
    };
    match (verdict, ip) {
        (Public, _) => None,
        (Refused(rule), _) => Some(rule),
        (Inside(shift), IpAddr::V6(ip)) => {
            // Only the low 32 bits are kept, which is what is meant.
            let inside = u32::try_from((ip.to_bits() >> shift) & u128::from(u32::MAX));
            inside
                .map_or(Some("not an IPv4 address inside"), |bits| refusal(Ipv4Addr::from_bits(bits).into()))
        }
        (Inside(_), IpAddr::V4(_)) => Some("no address is inside an IPv4 address"),
    }
}

/// Why a URL is not called: each text names the rule and says what to do, and is safe to show to a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It cannot be parsed as an absolute URL with a host, or has characters that parsers disagree about.
    #[error(
        "the URL is not an absolute https URL: write it as https://host/path, without blanks, control characters \
         or backslashes"
    )]
    Malformed,
    /// Its scheme is none that is ever called.
    #[error("the URL's scheme is not called: use https")]
    Scheme,
    /// It is plain http, which this installation does not allow.
    #[error("plain http is not called here: use https, or ask the operator to allow http")]
    PlainHttp,
    /// It carries a user name or a password (RFC 3986 §3.2.1).
    #[error("the URL must not carry a user name or password: take out what stands before the @")]
    Credentials,
    /// Its host is no name that DNS could know (RFC 1035 §2.3.4): an empty or overlong label, or too long.
    #[error("the URL's host is not a valid name: use a name of at most 253 characters without empty parts")]
    HostName,
    /// Its port is another protocol's, or none that the operator lists.
    #[error(
        "the URL's port {0} is not called: leave the port out, use another, or ask the operator to list it"
    )]
    Port(u16),
    /// The host is written as an address that is not public; the text is the rule with its RFC.
    #[error(
        "the URL's address is not public, it is {0}: use a public address, or ask the operator to list its network"
    )]
    Address(&'static str),
    /// `localhost` or a name below it (RFC 6761 §6.3).
    #[error(
        "localhost names are loopback (RFC 6761): use a public host, or ask the operator to list the loopback \
         network"
    )]
    Localhost,
    /// The name resolved to an address that is not public. The text is the rule, kept from the tenant, who could
    /// otherwise map the network behind by the names in it.
    #[error(
        "the host's name resolves to an address that is not public: let it resolve to public addresses only, or ask \
         the operator to list its network"
    )]
    Resolved(&'static str),
}

/// What the operator allows beyond the rules.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Networks that may be dialled although they are not public. Empty: none.
    pub allow: Vec<IpNet>,
    /// Whether `http` may be called, without TLS.
    pub allow_http: bool,
    /// The ports that may be called; none: all but those of other protocols.
    pub ports: Option<Vec<RangeInclusive<u16>>>,
}

impl Policy {
    /// Whether an address may be dialled.
    pub fn check_address(&self, ip: IpAddr) -> Result<(), Refusal> {
        // A mapped address is dialled over IPv4, so the IPv4 networks of the list hold it too.
        let canonical = ip.to_canonical();
        if self.allow.iter().any(|net| net.contains(&ip) || net.contains(&canonical)) {
            return Ok(());
        }
        refusal(ip).map_or(Ok(()), |rule| Err(Refusal::Address(rule)))
    }

    /// Whether a name may be dialled that resolves to `addresses`: one refused address refuses the name, or its
    /// owner could mix a private address among public ones.
    pub fn check_resolved(&self, addresses: &[IpAddr]) -> Result<(), Refusal> {
        addresses.iter().try_for_each(|ip| match self.check_address(*ip) {
            Err(Refusal::Address(rule)) => Err(Refusal::Resolved(rule)),
            other => other,
        })
    }

    /// The loopback addresses that may be dialled: what `localhost` stands for (RFC 6761 §6.3), whatever a resolver
    /// says.
    #[must_use]
    pub fn loopback(&self) -> Vec<IpAddr> {
        let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        both.into_iter().filter(|ip| self.check_address(*ip).is_ok()).collect()
    }

    /// Parses a URL and judges what can be judged without resolving: scheme, credentials, port, and the host if it
    /// is an address (in any spelling) or a `localhost` name. Its length is the caller's to limit.
    ///
    /// The result has no fragment: that is never sent (RFC 9110 §7.1).
    pub fn check_url(&self, text: &str) -> Result<Url, Refusal> {
        // A parser that drops or rewrites these reads another URL than the one next to it.
        if text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err(Refusal::Malformed);
        }
        let mut url = Url::parse(text).map_err(|_| Refusal::Malformed)?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => return Err(Refusal::PlainHttp),
            _ => return Err(Refusal::Scheme),
        }
        // The parser would also take `https:host` and `https:///host`.
        let after = text.get(url.scheme().len()..).and_then(|rest| rest.strip_prefix("://"));
        let authority = after.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        if authority.is_empty() {
            return Err(Refusal::Malformed);
        }
        // The parser forgets an empty user name.
        if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::Credentials);
        }
        let port = url.port_or_known_default().ok_or(Refusal::Malformed)?;
        if !port::may_be_called(port, self.ports.as_deref()) {
            return Err(Refusal::Port(port));
        }
        match url.host().ok_or(Refusal::Malformed)? {
            Host::Ipv4(ip) => self.check_address(ip.into())?,
            Host::Ipv6(ip) => self.check_address(ip.into())?,
            Host::Domain(name) => self.check_name(name)?,
        }
        url.set_fragment(None);
        Ok(url)
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        let bare = name.strip_suffix('.').unwrap_or(name);
        let labels_fit = bare.split('.').all(|label| (1..=LABEL_MAX).contains(&label.len()));
        if bare.len() > NAME_MAX || !labels_fit {
            return Err(Refusal::HostName);
        }
        if is_localhost(name) && self.loopback().is_empty() {
            return Err(Refusal::Localhost);
        }
        Ok(())
    }
}

/// Whether a host name is `localhost` or below it (RFC 6761 §6.3), in any case, with or without a last dot.
pub(super) fn is_localhost(name: &str) -> bool {
    let bare = name.strip_suffix('.').unwrap_or(name);
    let last = bare.rsplit('.').next().unwrap_or(bare);
    last.eq_ignore_ascii_case("localhost")
}

/// The receiver behind a URL, which pacing and breakers are kept by: `scheme://host:port` in lower case, the port
/// always written, without the dot that may end a name. The path plays no part.
#[must_use]
pub fn receiver(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    format!("{}://{host}:{}", url.scheme(), url.port_or_known_default().unwrap_or(0))
}
