//! Valid texts that cases are made of, and the words of their languages.

pub(crate) const JSON: &[&[u8]] = &[
    br#"{"a":1,"b":[true,false,null,{"c":"\u0061\n\ud83e\udd80"}],"d":{"e":-1.5e10}}"#,
    br#"[{"a":{"b":{"c":[1,2,3]}}},"x",18446744073709551615,0.1]"#,
    b" { \"k\" : \"\xc3\xa9\" , \"k2\" : [ ] } ",
];

pub(crate) const ARTICLES: &[&[u8]] = &[
    br#"{"external_id":"post-1","group_code":"one","title":"Hello","content_html":"<p>Hello</p>"}"#,
    br#"{"external_id":"e\u0301t\u00e9-2","group_code":"both","title":"T","content_html":"<h1>T</h1><img src=\"https://h.invalid/a.png\">","summary":"S","cover_url":"https://h.invalid/c.png","canonical_url":"https://h.invalid/a","author":"A","tags":["a","b"],"callback_url":"https://h.invalid:8443/hook?x=1","publish_at":"2030-01-31T09:00:00+08:00","draft":true,"on_duplicate":"reject","metadata":{"k":[1,{"n":null}],"x":1.10}}"#,
    br#"{"external_id":"2026-11-29T18:55:21Z","group_code":"one","title":"\ud83e\udd80","content_html":"x","tags":[],"draft":false,"publish_at":"1999-12-31T23:59:60Z","metadata":{}}"#,
];

pub(crate) const ARTICLES_OF_A_BATCH: &[&[u8]] = &[
    br#"{"idempotency_key":"k-1","external_id":"post-3","group_code":"one","title":"Hello","content_html":"<p>Hello</p>"}"#,
    br#"{"idempotency_key":"~!","external_id":"p","group_code":"one","title":"T","content_html":"x","tags":["a"],"metadata":{"a":1}}"#,
];

pub(crate) const PATCHES: &[&[u8]] = &[
    br#"{"title":"Other","summary":null,"tags":["x"],"metadata":{"a":{"b":null}}}"#,
    br#"{"group_code":"both","content_html":"<p>y</p>","callback_url":null,"publish_at":"2031-01-01T00:00:00.123456Z"}"#,
    b"{}",
];

pub(crate) const ACCOUNTS: &[&[u8]] = &[
    br#"{"display_name":"Blog","settings":{"site":"blog"},"min_interval_seconds":0,"max_in_flight":4,"daily_limit":100,"time_zone":"Europe/Berlin","resume":true}"#,
    br#"{"settings":{"base_url":"https://blog.invalid:2/"},"credentials":{"username":"u","application_password":"p p p"}}"#,
    br#"{"settings":{"base_url":"https://ghost.invalid:2"},"credentials":{"admin_api_key":"0123456789abcdef01234567:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}"#,
    br#"{"settings":{"endpoint":"https://bridge.invalid:2/in"},"credentials":{"secret":"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"}}"#,
    br#"{"settings":{"behaviour":[{"do":"lose_answer"},{"do":"error","step":"find","nth":3,"times":2}],"seed":7,"latency_ms":1},"credentials":{"token":"t"}}"#,
];

pub(crate) const GROUPS: &[&[u8]] = &[
    br#"{"title":"Main","accounts":[{"platform":"static_site","account_id":"blog1"},{"platform":"sandbox","account_id":"a@b.c"}]}"#,
    br#"{"accounts":[]}"#,
];

pub(crate) const RETRY_AFTER: &[&[u8]] = &[
    b"120",
    b"86401",
    b"Sun, 06 Nov 1994 08:49:37 GMT",
    b"Sunday, 06-Nov-94 08:49:37 GMT",
    b"Sun Nov  6 08:49:37 1994",
    b"Thu, 31 Dec 9999 23:59:59 GMT",
    b"Sat, 29 Feb 2028 00:00:00 GMT",
];

pub(crate) const RETRY_AFTER_WORDS: &[&[u8]] =
    &[b"GMT", b"Mon, ", b"Feb", b"29", b"60", b"0000", b"9999", b"-", b":", b"+0000", b"UTC"];

pub(crate) const SECRETS: &[&[u8]] =
    &[b"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", b"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"];

pub(crate) const SIGNATURE_WORDS: &[&[u8]] = &[b"v1,", b"v1a,", b" ", b"=", b"==", b"v2,", b"whsec_", b","];

pub(crate) const KEYS: &[&[u8]] = &[
    b"pk_AaKIqWzshwSnlKN5pgvcM6wQOZ5s2HcEp5SjeaYL3DOsEDmebNh3BKeUo3mmC9wz",
    b"Bearer pk_AaKIqWzshwSnlKN5pgvcM6wQOZ5s2HcEp5SjeaYL3DOsEDmebNh3BKeUo3mmC9wz",
];

pub(crate) const CURSORS: &[&[u8]] = &[
    b"AaKIqWzshwSnlKN5pgvcMwAAAAAAAAAH",
    b"AAAAAAAAAAcBoocpbOxwhKeUo3mmC9wz",
    b"2026-11-29T18:55:21.845114Z",
    b"2026-11-29T23:59:60+08:00",
    b"200",
    b"f_________8BoocpbOxwhKeUo3mmC9wz",
];

pub(crate) const ADDRESSES: &[&[u8]] = &[
    b"https://example.com:8443/hook?a=b#c",
    b"http://user:secret@example.com/",
    b"https://127.0.0.1/",
    b"https://0x7f.0.0.1./",
    b"https://2130706433/",
    b"https://[::ffff:10.0.0.1]:443/",
    b"https://[64:ff9b::192.168.0.1]/",
    b"https://[2002:7f00:1::]/",
    b"https://[fe80::1%25eth0]/",
    b"https://b\xc3\xbccher.example/",
    "https://１２７.０.０.１/".as_bytes(),
    b"https://foo.localhost./",
    b"https://example.com\\@10.0.0.1/",
];

pub(crate) const ADDRESS_WORDS: &[&[u8]] = &[
    b"127.0.0.1",
    b"10.",
    b"169.254.169.254",
    b"0x7f",
    b"0177",
    b"017700000001",
    b"4294967295",
    b"[::1]",
    b"[",
    b"]",
    b"::",
    b"::ffff:",
    b"64:ff9b::",
    b"2002:",
    b"2001::",
    b"%25lo",
    b"localhost",
    b".",
    b"xn--",
    b"\xe3\x80\x82",
    b"\xc2\xad",
    b"\xe2\x91\xa0",
    b"@",
    b":",
    b":25",
    b":0",
    b":65536",
    b"//",
    b"\\",
    b"http:",
    b"https://",
    b"file://",
    b"%31",
    b"%2e",
    b"%00",
    b"\t",
];

/// Bodies of the other routes.
pub(crate) const BODIES: &[&[u8]] = &[
    br#"{"articles":[{"external_id":"b1","group_code":"one","title":"T","content_html":"x"},{"external_id":"b2","group_code":"nope","title":"","content_html":1},3]}"#,
    br#"{"external_ids":["post-1","post-2","e\u0301"]}"#,
    br#"{"platform":"static_site","account_id":"blog1","confirmed_not_published":true}"#,
    br#"{"platform":"static_site","account_id":"blog1","confirmed_published":{"url":"https://h.invalid/x","remote_id":"r"}}"#,
    br#"{"accounts":[{"platform":"static_site","account_id":"blog2"}]}"#,
    br#"{"since":"2026-11-29T00:00:00Z","until":"2026-11-30T00:00:00Z","status":"exhausted"}"#,
    br#"{"platform":"http_bridge","account_ids":["a"],"max":3}"#,
    br#"{"status":"published","url":"https://h.invalid/x","remote_id":"r","message":"m"}"#,
    br#"{"status":"failed","code":"c","message":"m","retryable":true}"#,
    br#"{"claim":"AAAAAAAAAAAAAAAAAAAAAA","fence":1}"#,
    b"null",
    b"{}",
    b"",
];

/// What stands in paths and queries.
pub(crate) const NAMES: &[&[u8]] = &[
    b"post-1",
    b"post-2",
    b"2026-11-29T18:55:21Z",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"static_site",
    b"sandbox",
    b"http_bridge",
    b"wordpress",
    b"ghost",
    b"blog1",
    b"blog2",
    b"one",
    b"both",
    b"empty",
    b"01a228a9-6cf2-7ef6-9ddd-1c73000ec308",
    b"00000000-0000-0000-0000-000000000000",
    b"draft",
    b"running",
    b"pending",
    b"exhausted",
    b"content",
    b"1",
    b"200",
    b"201",
    b"-1",
    b"2026-11-29T00:00:00Z",
    b"0000-01-01T00:00:00Z",
    b"AAAAAAAAAAcBoocpbOxwhKeUo3mmC9wz",
    b"AaKIqWzshwSnlKN5pgvcMwAAAAAAAAAH",
    b"..",
    b"%",
    b"_",
    b"\0",
];
