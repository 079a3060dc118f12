use proptest::prelude::*;

use super::*;

fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|net| net.parse().unwrap()).collect()
}

fn open(list: &[&str]) -> Policy {
    Policy { allow: nets(list), allow_http: true, ports: None }
}

/// Written out a second time, from the registries, so that a slip in the table shows.
const BLOCKED: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/29",
    "192.0.0.8/32",
    "192.0.0.128/25",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "200::/7",
    "400::/6",
    "800::/5",
    "1000::/4",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:100::/24",
    "2001:db8::/32",
    "3ffe::/16",
    "3fff::/20",
    "4000::/3",
    "5f00::/16",
    "6000::/3",
    "8000::/3",
    "a000::/3",
    "c000::/3",
    "e000::/4",
    "f000::/5",
    "f800::/6",
    "fc00::/7",
    "fe00::/9",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

const REACHABLE: &[&str] = &[
    "1.0.0.0/24",
    "8.8.8.0/24",
    "9.255.255.0/24",
    "11.0.0.0/8",
    "100.63.0.0/16",
    "100.128.0.0/16",
    "126.0.0.0/8",
    "128.0.0.0/16",
    "169.253.0.0/16",
    "169.255.0.0/16",
    "172.15.0.0/16",
    "172.32.0.0/16",
    "192.0.0.9/32",
    "192.0.0.10/32",
    "192.0.1.0/24",
    "192.0.3.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.98.0/24",
    "192.167.0.0/16",
    "192.169.0.0/16",
    "192.175.48.0/24",
    "198.17.0.0/16",
    "198.20.0.0/16",
    "198.51.99.0/24",
    "203.0.112.0/24",
    "203.0.114.0/24",
    "223.0.0.0/8",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:1::3/128",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:20::/28",
    "2001:30::/28",
    "2001:200::/23",
    "2001:4860::/32",
    "2003::/18",
    "2400::/12",
    "2606:4700::/32",
    "2620:4f:8000::/48",
    "2a00::/12",
    "3ffd::/16",
];

fn ends(net: IpNet) -> [IpAddr; 2] {
    [net.network(), net.broadcast()]
}

#[test]
fn the_ends_of_every_block_are_judged_as_the_registries_say() {
    for net in nets(BLOCKED) {
        for ip in ends(net) {
            assert!(refusal(ip).is_some(), "{ip} of {net} is not public");
        }
    }
    for net in nets(REACHABLE) {
        for ip in ends(net) {
            assert_eq!(refusal(ip), None, "{ip} of {net} is public");
        }
    }
    assert_eq!(refusal("10.0.0.1".parse().unwrap()), Some("private use (RFC 1918)"));
    assert_eq!(refusal("::ffff:10.0.0.1".parse().unwrap()), Some("private use (RFC 1918)"));
    assert_eq!(refusal("2001:1::4".parse().unwrap()), Some("IETF protocol assignments (RFC 2928)"));
}

fn within(list: &'static [&'static str]) -> impl Strategy<Value = IpAddr> {
    (prop::sample::select(list), any::<u128>()).prop_map(|(net, random)| match net.parse().unwrap() {
        IpNet::V4(net) => {
            let low = u32::try_from(random & u128::from(u32::MAX)).unwrap();
            Ipv4Addr::from_bits(net.network().to_bits() | (low & net.hostmask().to_bits())).into()
        }
        IpNet::V6(net) => {
            Ipv6Addr::from_bits(net.network().to_bits() | (random & net.hostmask().to_bits())).into()
        }
    })
}

/// The IPv6 addresses that lead to an IPv4 address: mapped, NAT64, 6to4 (with anything behind it).
fn spellings(ip: Ipv4Addr, rest: u128) -> [IpAddr; 3] {
    let bits = u128::from(ip.to_bits());
    [
        ip.to_ipv6_mapped().into(),
        Ipv6Addr::from_bits(0x64_ff9b << 96 | bits).into(),
        Ipv6Addr::from_bits(0x2002 << 112 | bits << 80 | rest & ((1 << 80) - 1)).into(),
    ]
}

proptest! {
    #[test]
    fn nothing_in_a_refused_block_is_dialled(ip in within(BLOCKED)) {
        prop_assert!(refusal(ip).is_some(), "{}", ip);
        let url = match ip {
            IpAddr::V4(ip) => format!("https://{ip}/"),
            IpAddr::V6(ip) => format!("https://[{ip}]/"),
        };
        prop_assert!(matches!(Policy::default().check_url(&url), Err(Refusal::Address(_))));
    }

    #[test]
    fn public_blocks_stay_callable(ip in within(REACHABLE)) {
        prop_assert_eq!(refusal(ip), None, "{}", ip);
    }

    #[test]
    fn an_ipv4_address_is_judged_alike_in_every_ipv6_spelling(
        ip in prop_oneof![any::<Ipv4Addr>().prop_map(IpAddr::V4), within(BLOCKED)], rest in any::<u128>(),
    ) {
        if let IpAddr::V4(v4) = ip {
            for spelling in spellings(v4, rest) {
                prop_assert_eq!(refusal(spelling), refusal(ip), "{} for {}", spelling, ip);
            }
        }
    }

    #[test]
    fn every_number_spelling_of_a_refused_address_is_refused(ip in within(&["127.0.0.0/8", "10.0.0.0/8"])) {
        let IpAddr::V4(ip) = ip else { unreachable!() };
        let (bits, [a, b, c, d]) = (ip.to_bits(), ip.octets());
        let tail = bits & 0xff_ffff;
        for host in [
            format!("{bits}"), format!("0x{bits:x}"), format!("0{bits:o}"), format!("{a}.{tail}"),
            format!("{a}.{b}.{}", tail & 0xffff), format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
            format!("0x{a:x}.0x{b:X}.{c}.0{d:o}"), format!("{a}.{b}.{c}.{d}."),
        ] {
            let checked = Policy::default().check_url(&format!("https://{host}/"));
            prop_assert!(matches!(checked, Err(Refusal::Address(_))), "{}: {:?}", host, checked);
        }
    }

    #[test]
    fn any_text_is_survived(text in "(https?:/{0,3})?[\\[\\]@:/.%0-9a-fxX#?\\\\\\PC]{0,40}") {
        if let Ok(url) = open(&[]).check_url(&text) {
            prop_assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
            match url.host().unwrap() {
                Host::Ipv4(ip) => prop_assert_eq!(refusal(ip.into()), None),
                Host::Ipv6(ip) => prop_assert_eq!(refusal(ip.into()), None),
                Host::Domain(name) => prop_assert!(!is_localhost(name)),
            }
        }
    }
}

#[test]
fn hostile_spellings_are_refused() {
    let written = hostile::SPELLINGS.iter().collect::<std::collections::HashSet<_>>();
    assert!(written.len() == hostile::SPELLINGS.len() && written.len() >= 150, "{}", written.len());
    for text in hostile::SPELLINGS {
        let checked = open(&[]).check_url(text);
        assert!(checked.is_err(), "{text:?} was taken for {}", checked.unwrap());
    }
}

#[test]
fn public_spellings_pass_and_name_their_receiver() {
    let table = [
        ("https://example.com", "https://example.com:443"),
        ("https://example.com/", "https://example.com:443"),
        ("https://example.com:443/", "https://example.com:443"),
        ("https://example.com:/", "https://example.com:443"),
        ("https://example.com:80/", "https://example.com:80"),
        ("http://example.com/", "http://example.com:80"),
        ("http://example.com:443/", "http://example.com:443"),
        ("https://Example.COM./hook?a=b#part", "https://example.com:443"),
        ("https://EXAMPLE.com.:443", "https://example.com:443"),
        ("HTTPS://example.com:8443/a/../b", "https://example.com:8443"),
        ("hTTp://example.com:8080", "http://example.com:8080"),
        // ports on which sites, bridges and receivers stand
        ("https://example.com:81/", "https://example.com:81"),
        ("https://example.com:591/", "https://example.com:591"),
        ("https://example.com:2083/", "https://example.com:2083"),
        ("https://example.com:2368/ghost/", "https://example.com:2368"),
        ("https://example.com:3000/", "https://example.com:3000"),
        ("https://example.com:5678/webhook/x", "https://example.com:5678"),
        ("https://example.com:8000/", "https://example.com:8000"),
        ("https://example.com:9000/", "https://example.com:9000"),
        ("https://example.com:08443/", "https://example.com:8443"),
        ("https://example.com:65535/", "https://example.com:65535"),
        // names
        ("https://bücher.example/", "https://xn--bcher-kva.example:443"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example:443"),
        ("https://例え.テスト/", "https://xn--r8jz45g.xn--zckzah:443"),
        ("https://例え。テスト/", "https://xn--r8jz45g.xn--zckzah:443"),
        ("https://ＥＸＡＭＰＬＥ.com/", "https://example.com:443"),
        ("https://ex%61mple.com/", "https://example.com:443"),
        ("https://localhost.example.com/", "https://localhost.example.com:443"),
        ("https://notlocalhost/", "https://notlocalhost:443"),
        ("https://my_host-1.example/@me?to=a@b.example", "https://my_host-1.example:443"),
        ("https://a.b.c.d.e.f.g.example/", "https://a.b.c.d.e.f.g.example:443"),
        ("https://10.example.com/", "https://10.example.com:443"),
        ("https://127.0.0.1.example.com/", "https://127.0.0.1.example.com:443"),
        ("https://0x7f.example/", "https://0x7f.example:443"),
        ("https://1e100.example/", "https://1e100.example:443"),
        // paths, queries and fragments that hold what a host must not
        ("https://example.com/http://127.0.0.1/", "https://example.com:443"),
        ("https://example.com?next=http://user@127.0.0.1/", "https://example.com:443"),
        ("https://example.com#@127.0.0.1", "https://example.com:443"),
        ("https://example.com/%00%0d%0a", "https://example.com:443"),
        ("https://example.com/ü/例", "https://example.com:443"),
        // addresses
        ("https://8.8.8.8/", "https://8.8.8.8:443"),
        ("https://8.8.8.8./", "https://8.8.8.8:443"),
        ("https://8.8.8.8:8443/", "https://8.8.8.8:8443"),
        ("https://134744072/", "https://8.8.8.8:443"),
        ("https://0x08080808/", "https://8.8.8.8:443"),
        ("https://010.8.8.8/", "https://8.8.8.8:443"),
        ("https://８.８.８.８/", "https://8.8.8.8:443"),
        ("https://192.0.0.9/", "https://192.0.0.9:443"),
        ("https://172.32.0.1/", "https://172.32.0.1:443"),
        ("https://100.128.0.1/", "https://100.128.0.1:443"),
        ("https://[2606:4700:4700::1111]:444/", "https://[2606:4700:4700::1111]:444"),
        ("https://[2606:4700:4700:0:0:0:0:1111]/", "https://[2606:4700:4700::1111]:443"),
        ("https://[2A00:1450:4001:0::]/", "https://[2a00:1450:4001::]:443"),
        ("https://[64:ff9b::8.8.8.8]/", "https://[64:ff9b::808:808]:443"),
        ("https://[::ffff:8.8.8.8]/", "https://[::ffff:808:808]:443"),
        ("https://[2002:808:808::1]/", "https://[2002:808:808::1]:443"),
    ];
    assert!(table.len() >= 50, "{}", table.len());
    for (text, key) in table {
        let url = open(&[]).check_url(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
        assert_eq!(receiver(&url), key, "{text}");
        assert_eq!(url.fragment(), None);
    }
}

#[test]
fn a_list_of_ports_is_all_that_is_called() {
    let policy = Policy { ports: Some(vec![443..=443, 8000..=8999]), ..open(&["10.0.0.0/8"]) };
    for text in
        ["https://example.com/", "http://example.com:443/", "http://8.8.8.8:8080/", "http://10.0.0.1:8999/"]
    {
        assert!(policy.check_url(text).is_ok(), "{text}");
    }
    for (text, port) in
        [("http://example.com/", 80), ("https://example.com:9000/", 9000), ("http://10.0.0.1/", 80)]
    {
        assert_eq!(policy.check_url(text), Err(Refusal::Port(port)), "{text}");
    }
}

#[test]
fn each_rule_is_named_with_what_to_do() {
    let check = |text| Policy::default().check_url(text).unwrap_err();
    let label = "a".repeat(64);
    let name = ["abcdefghi."; 26].concat();
    let table = [
        ("http://example.com/", Refusal::PlainHttp),
        ("ftp://example.com/", Refusal::Scheme),
        ("https://a@example.com/", Refusal::Credentials),
        ("https:///example.com/", Refusal::Malformed),
        ("https://example.com:0/", Refusal::Port(0)),
        ("https://example.com:25/", Refusal::Port(25)),
        ("https://x.localhost./", Refusal::Localhost),
        ("https://192.168.0.1/", Refusal::Address("private use (RFC 1918)")),
        (&format!("https://{label}.example/"), Refusal::HostName),
        (&format!("https://{name}com/"), Refusal::HostName),
    ];
    for (text, expected) in table {
        assert_eq!(check(text), expected, "{text}");
        assert!(expected.to_string().contains(": "), "says what to do: {expected}");
    }
    // The tenant does not learn what kind of network a name leads to.
    let resolved = Refusal::Resolved("private use (RFC 1918)");
    assert!(!resolved.to_string().contains("1918"));
}

#[test]
fn the_operators_list_overrides_the_rules_and_nothing_more() {
    let policy = open(&["10.1.0.0/16", "fd00::/8", "127.0.0.0/8"]);
    for text in [
        "http://10.1.2.3/",
        "http://[::ffff:10.1.2.3]/",
        "http://[fd12::1]/",
        "http://localhost:8080/",
        "http://x.localhost./",
        "http://127.1/",
    ] {
        assert!(policy.check_url(text).is_ok(), "{text}");
    }
    for text in
        ["http://10.2.0.1/", "http://[::ffff:10.2.0.1]/", "http://[::1]/", "http://[64:ff9b::10.1.2.3]/"]
    {
        assert!(matches!(policy.check_url(text), Err(Refusal::Address(_))), "{text}");
    }
    assert_eq!(policy.loopback(), [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    assert_eq!(open(&["10.0.0.0/8"]).check_url("http://localhost/"), Err(Refusal::Localhost));
    assert_eq!(Policy::default().loopback(), [] as [IpAddr; 0]);
}

#[test]
fn one_refused_address_refuses_the_name() {
    let ips = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
    let policy = Policy::default();
    assert_eq!(policy.check_resolved(&ips(&["8.8.8.8", "2606:4700::1"])), Ok(()));
    let refused = Err(Refusal::Resolved("private use (RFC 1918)"));
    assert_eq!(policy.check_resolved(&ips(&["8.8.8.8", "10.0.0.1"])), refused);
    assert_eq!(policy.check_resolved(&ips(&["10.0.0.1", "8.8.8.8"])), refused);
}
