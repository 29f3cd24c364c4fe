//! Wrong models: each is refused with the pointer of the field and the reason, never with a panic or a default.

use te::error::Reason;
use te::model::Model;

const GOOD: &str = r#"{
 "nodes": [{"id":"a","latitude":40.0,"longitude":-74.0},{"id":"b","latitude":41.0,"longitude":-87.0},{"id":"c"}],
 "links": [{"id":"ab","from":"a","to":"b","latency_ms":5,"bandwidth_mbps":100,"background_mbps":1},
           {"id":"ba","from":"b","to":"a","latency_ms":5,"bandwidth_mbps":100},
           {"id":"bc","from":"b","to":"c","latency_ms":5,"bandwidth_mbps":100},
           {"id":"cb","from":"c","to":"b","latency_ms":5,"bandwidth_mbps":100}],
 "max_link_utilization": 1.0,
 "routing": {"kind":"shortest-path"},
 "sites": [{"id":"s","node":"b","capacity":1000}],
 "vnfs": [{"id":"f","load_per_mbps":1.0,"deployments":[{"site":"s","capacity":500}]},
          {"id":"nowhere","load_per_mbps":1.0,"deployments":[]}],
 "chains": [{"id":"x","ingress":"a","egress":"c","vnfs":["f"],"forward_mbps":10,"reverse_mbps":[1,2]}]
}"#;

/// What is replaced, by what, and the expected pointer and reason.
const CASES: &[(&str, &str, &str, Reason)] = &[
    (
        r#""from":"a","to":"b""#,
        r#""from":"zz","to":"b""#,
        "/links/0/from",
        Reason::DanglingReference,
    ),
    (
        r#""from":"a","to":"b""#,
        r#""from":"a","to":"zz""#,
        "/links/0/to",
        Reason::DanglingReference,
    ),
    (
        r#""from":"a","to":"b""#,
        r#""from":"a","to":"a""#,
        "/links/0/to",
        Reason::Contradiction,
    ),
    (
        r#""from":"a","to":"b""#,
        r#""from":"a""#,
        "/links/0",
        Reason::MissingField,
    ),
    (
        r#""from":"a","to":"b""#,
        r#""from":7,"to":"b""#,
        "/links/0/from",
        Reason::WrongType,
    ),
    (
        r#"{"id":"c"}"#,
        r#"{"id":"a"}"#,
        "/nodes/2/id",
        Reason::Duplicate,
    ),
    (
        r#"{"id":"c"}"#,
        r#"{"id":""}"#,
        "/nodes/2/id",
        Reason::OutOfRange,
    ),
    (
        r#"{"id":"c"}"#,
        r#"{"name":"c"}"#,
        "/nodes/2/name",
        Reason::UnknownField,
    ),
    (
        r#"{"id":"c"}"#,
        r#"{"id":"c","latitude":1}"#,
        "/nodes/2",
        Reason::MissingField,
    ),
    (
        r#"{"id":"c"}"#,
        r#"{"id":"c","latitude":91,"longitude":0}"#,
        "/nodes/2/latitude",
        Reason::OutOfRange,
    ),
    (
        r#"{"id":"c"}"#,
        r#"{"id":"c","id":"d"}"#,
        "/nodes/2/id",
        Reason::Duplicate,
    ),
    (r#"{"id":"c"}"#, r#"null"#, "/nodes/2", Reason::WrongType),
    (
        r#""id":"ba""#,
        r#""id":"ab""#,
        "/links/1/id",
        Reason::Duplicate,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth_mbps":0"#,
        "/links/0/bandwidth_mbps",
        Reason::OutOfRange,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth_mbps":-1"#,
        "/links/0/bandwidth_mbps",
        Reason::OutOfRange,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth_mbps":NaN"#,
        "/links/0/bandwidth_mbps",
        Reason::OutOfRange,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth_mbps":1e999"#,
        "/links/0/bandwidth_mbps",
        Reason::OutOfRange,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth_mbps":"100""#,
        "/links/0/bandwidth_mbps",
        Reason::WrongType,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth_mbps":100,"background_mbps":-5"#,
        "/links/0/background_mbps",
        Reason::OutOfRange,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth_mbps":0100"#,
        "/links/0/bandwidth_mbps",
        Reason::Syntax,
    ),
    (
        r#""bandwidth_mbps":100,"background_mbps":1"#,
        r#""bandwidth":100"#,
        "/links/0/bandwidth",
        Reason::UnknownField,
    ),
    (
        r#""latency_ms":5,"bandwidth_mbps":100,"background_mbps":1"#,
        r#""latency_ms":-5,"bandwidth_mbps":100"#,
        "/links/0/latency_ms",
        Reason::OutOfRange,
    ),
    (
        r#""id":"bc","from":"b","to":"c","latency_ms":5"#,
        r#""id":"bc","from":"b","to":"c""#,
        "/links/2",
        Reason::MissingField,
    ),
    (
        r#""max_link_utilization": 1.0"#,
        r#""max_link_utilization": 0"#,
        "/max_link_utilization",
        Reason::OutOfRange,
    ),
    (
        r#""max_link_utilization": 1.0"#,
        r#""max_link_utilization": true"#,
        "/max_link_utilization",
        Reason::WrongType,
    ),
    (
        r#""kind":"shortest-path""#,
        r#""kind":"fastest""#,
        "/routing/kind",
        Reason::UnknownChoice,
    ),
    (
        r#""kind":"shortest-path""#,
        r#""kind":"shortest-path","entries":[]"#,
        "/routing/entries",
        Reason::Contradiction,
    ),
    (
        r#""kind":"shortest-path""#,
        r#""kind":"fractions""#,
        "/routing",
        Reason::MissingField,
    ),
    (
        r#""kind":"shortest-path""#,
        r#""kind":"fractions","entries":[{"from":"a","to":"b","link":"ab","fraction":0.5}]"#,
        "/routing/entries/0",
        Reason::Contradiction,
    ),
    (
        r#""kind":"shortest-path""#,
        r#""kind":"fractions","entries":[{"from":"a","to":"b","link":"ab","fraction":1.5}]"#,
        "/routing/entries/0/fraction",
        Reason::OutOfRange,
    ),
    (
        r#""kind":"shortest-path""#,
        r#""kind":"fractions","entries":[{"from":"a","to":"b","link":"no","fraction":1}]"#,
        "/routing/entries/0/link",
        Reason::DanglingReference,
    ),
    (
        r#""kind":"shortest-path""#,
        r#""kind":"fractions","entries":[{"from":"a","to":"b","link":"ab","fraction":1}]"#,
        "/chains/0/vnfs/0",
        Reason::Unreachable,
    ),
    (
        r#""node":"b","capacity":1000"#,
        r#""node":"q","capacity":1000"#,
        "/sites/0/node",
        Reason::DanglingReference,
    ),
    (
        r#""node":"b","capacity":1000"#,
        r#""node":"b","capacity":0"#,
        "/sites/0/capacity",
        Reason::OutOfRange,
    ),
    (
        r#""node":"b","capacity":1000"#,
        r#""node":"b""#,
        "/sites/0",
        Reason::MissingField,
    ),
    (
        r#"{"site":"s","capacity":500}"#,
        r#"{"site":"t","capacity":500}"#,
        "/vnfs/0/deployments/0/site",
        Reason::DanglingReference,
    ),
    (
        r#"{"site":"s","capacity":500}"#,
        r#"{"site":"s","capacity":0}"#,
        "/vnfs/0/deployments/0/capacity",
        Reason::OutOfRange,
    ),
    (
        r#"{"site":"s","capacity":500}"#,
        r#"{"site":"s","capacity":5},{"site":"s","capacity":5}"#,
        "/vnfs/0/deployments/1/site",
        Reason::Duplicate,
    ),
    (
        r#""id":"f","load_per_mbps":1.0"#,
        r#""id":"f","load_per_mbps":-1.0"#,
        "/vnfs/0/load_per_mbps",
        Reason::OutOfRange,
    ),
    (
        r#""id":"f","load_per_mbps":1.0"#,
        r#""id":"nowhere","load_per_mbps":1.0"#,
        "/vnfs/1/id",
        Reason::Duplicate,
    ),
    (
        r#""vnfs":["f"]"#,
        r#""vnfs":["g"]"#,
        "/chains/0/vnfs/0",
        Reason::DanglingReference,
    ),
    (
        r#""vnfs":["f"]"#,
        r#""vnfs":["nowhere"]"#,
        "/chains/0/vnfs/0",
        Reason::NowhereDeployed,
    ),
    (
        r#""vnfs":["f"]"#,
        r#""vnfs":"f""#,
        "/chains/0/vnfs",
        Reason::WrongType,
    ),
    (
        r#""vnfs":["f"]"#,
        r#""vnfs":["f","f"]"#,
        "/chains/0/reverse_mbps",
        Reason::WrongLength,
    ),
    (
        r#""ingress":"a""#,
        r#""ingress":"z""#,
        "/chains/0/ingress",
        Reason::DanglingReference,
    ),
    (
        r#""ingress":"a""#,
        r#""ingress":[]"#,
        "/chains/0/ingress",
        Reason::WrongLength,
    ),
    (
        r#""ingress":"a""#,
        r#""ingress":["a","a"]"#,
        "/chains/0/ingress/1",
        Reason::Duplicate,
    ),
    (
        r#""ingress":"a""#,
        r#""ingress":[{"node":"a","share":0.5}]"#,
        "/chains/0/ingress",
        Reason::Contradiction,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":-10"#,
        "/chains/0/forward_mbps",
        Reason::OutOfRange,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":[10]"#,
        "/chains/0/forward_mbps",
        Reason::WrongLength,
    ),
    (
        r#""forward_mbps":10,"reverse_mbps":[1,2]"#,
        r#""forward_mbps":0"#,
        "/chains/0",
        Reason::OutOfRange,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":10,"minimum_share":1.5"#,
        "/chains/0/minimum_share",
        Reason::OutOfRange,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":10,"max_routes":1.5"#,
        "/chains/0/max_routes",
        Reason::OutOfRange,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":10,"customer":"nobody""#,
        "/chains/0/customer",
        Reason::DanglingReference,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":10,"avoid":{"sites":["nope"]}"#,
        "/chains/0/avoid/sites/0",
        Reason::DanglingReference,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":10,"avoid":{"sites":["s"]},"use":{"sites":["s"]}"#,
        "/chains/0/use",
        Reason::Contradiction,
    ),
    (
        r#""forward_mbps":10"#,
        r#""forward_mbps":10,"max_latency_ms":0"#,
        "/chains/0/max_latency_ms",
        Reason::OutOfRange,
    ),
    (
        r#"{"id":"ba","from":"b","to":"a","latency_ms":5,"bandwidth_mbps":100},"#,
        "",
        "/chains/0/vnfs/0",
        Reason::Unreachable,
    ),
    (
        r#""chains":"#,
        r#""chain":"#,
        "/chain",
        Reason::UnknownField,
    ),
    (
        r#""sites": ["#,
        r#""sites": [3,"#,
        "/sites/0",
        Reason::WrongType,
    ),
    (
        r#""nodes": ["#,
        r#""nodes": [,"#,
        "/nodes/0",
        Reason::Syntax,
    ),
    (
        r#""id":"x""#,
        r#""id":"\ud800""#,
        "/chains/0/id",
        Reason::Syntax,
    ),
    (
        r#""id":"x""#,
        "\"id\":\"a\u{1}b\"",
        "/chains/0/id",
        Reason::Syntax,
    ),
];

fn refused(text: &[u8]) -> te::error::InputError {
    Model::read(text).expect_err("must be refused")
}

#[test]
fn the_base_model_is_good() {
    Model::read(GOOD.as_bytes()).expect("good");
}

#[test]
fn each_wrong_model_is_refused_with_its_place_and_reason() {
    assert!(CASES.len() >= 40);
    for (from, to, pointer, reason) in CASES {
        assert!(
            GOOD.contains(from),
            "the base model does not contain {from}"
        );
        let error = refused(GOOD.replacen(from, to, 1).as_bytes());
        assert_eq!(
            (error.pointer.as_str(), error.reason),
            (*pointer, *reason),
            "{to}: {error}"
        );
        assert!(!error.message.is_empty());
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let text = GOOD.as_bytes();
    for end in 0..text.len() - 1 {
        refused(&text[..end]);
    }
}

#[test]
fn text_after_the_document_is_refused() {
    assert_eq!(
        refused(format!("{GOOD} {{}}").as_bytes()).reason,
        Reason::Syntax
    );
}

#[test]
fn a_gigabyte_of_nesting_fails_at_its_first_bytes() {
    const LENGTH: u64 = 1 << 30;
    let mut endless = std::io::Read::take(std::io::repeat(b'['), LENGTH);
    let error = Model::read(&mut endless).expect_err("too deep");
    assert_eq!(error.reason, Reason::TooDeep);
    let read = LENGTH - endless.limit();
    assert!(read < 1 << 20, "{read} bytes were read");
}

#[test]
fn random_bytes_never_panic() {
    let mut random = te::random::Random::new(5);
    for _ in 0..3000 {
        let mut text = GOOD.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(text.len());
            text[at] = random.below(256) as u8;
        }
        let _ = Model::read(&text[..]);
    }
}

#[test]
fn what_is_written_reads_back_equal() {
    let model = Model::read(GOOD.as_bytes()).expect("good");
    assert_eq!(
        Model::read(model.to_json().as_bytes()).expect("own output"),
        model
    );
}

#[test]
fn links_full_of_background_are_infeasible_and_named() {
    let text = GOOD.replace(r#""background_mbps":1"#, r#""background_mbps":101"#);
    let model = Model::read(text.as_bytes()).expect("readable");
    let error = te::instance::Instance::new(&model, te::instance::Demand::Full)
        .expect_err("equation 6 fails");
    assert_eq!(error.names(), ["link ab"]);
}

#[test]
fn demands_that_do_not_fit_are_infeasible_with_the_tight_constraint() {
    let text = GOOD.replace(r#""forward_mbps":10"#, r#""forward_mbps":200"#);
    let model = Model::read(text.as_bytes()).expect("readable");
    let instance =
        te::instance::Instance::new(&model, te::instance::Demand::Full).expect("background fits");
    let (objective, options) = (te::solution::Objective::Latency, Default::default());
    let solved = te::lp::solve(&model, &instance, objective, &options, &Default::default());
    let error = solved.expect_err("200 Mbit/s do not fit");
    assert!(
        error
            .names()
            .iter()
            .any(|c| *c == "link ab" || *c == "link bc"),
        "{error}"
    );
}

#[test]
fn quantities_that_no_solver_can_compute_with_are_refused() {
    let cases = [
        (
            "\"latency_ms\":5",
            "latency_ms",
            "/links/0/latency_ms",
            true,
        ),
        (
            "\"bandwidth_mbps\":100",
            "bandwidth_mbps",
            "/links/0/bandwidth_mbps",
            false,
        ),
        (
            "\"background_mbps\":1",
            "background_mbps",
            "/links/0/background_mbps",
            true,
        ),
        (
            "\"max_link_utilization\": 1.0",
            "max_link_utilization",
            "/max_link_utilization",
            false,
        ),
        (
            "\"node\":\"b\",\"capacity\":1000",
            "capacity",
            "/sites/0/capacity",
            false,
        ),
        (
            "\"site\":\"s\",\"capacity\":500",
            "capacity",
            "/vnfs/0/deployments/0/capacity",
            false,
        ),
        (
            "\"load_per_mbps\":1.0",
            "load_per_mbps",
            "/vnfs/0/load_per_mbps",
            true,
        ),
        (
            "\"forward_mbps\":10",
            "forward_mbps",
            "/chains/0/forward_mbps",
            true,
        ),
    ];
    for (text, name, pointer, zero) in cases {
        assert!(GOOD.contains(text), "{text}");
        let before = text.rfind(':').map(|at| &text[..=at]).expect("a member");
        for number in [
            "NaN",
            "Infinity",
            "-Infinity",
            "-1",
            "1e-300",
            "1e300",
            "1e400",
        ] {
            let wrong = GOOD.replacen(text, &format!("{before}{number}"), 1);
            // Measured traffic fades away without end.
            let fading = ["background_mbps", "forward_mbps"].contains(&name);
            if number == "1e-300" && fading {
                Model::read(wrong.as_bytes()).expect("little traffic");
                continue;
            }
            let error = refused(wrong.as_bytes());
            let syntax = error.reason == Reason::Syntax && number == "-Infinity";
            assert_eq!(error.pointer, pointer, "{name} {number}: {error}");
            assert!(
                error.reason == Reason::OutOfRange || syntax,
                "{name} {number}: {error}"
            );
        }
        let none = GOOD.replacen(text, &format!("{before}0"), 1);
        let read = Model::read(none.as_bytes());
        assert_eq!(read.is_ok(), zero, "{name}: {read:?}");
    }
    for extra in [
        "\"max_latency_ms\":1e300",
        "\"max_routes\":1e300",
        "\"priority\":1e-300",
        "\"priority\":0",
        "\"minimum_share\":1e-300",
        "\"survive_share\":2",
    ] {
        let text = GOOD.replacen("\"id\":\"x\"", &format!("\"id\":\"x\",{extra}"), 1);
        let error = refused(text.as_bytes());
        let name = extra.split('"').nth(1).expect("a name");
        assert_eq!(error.pointer, format!("/chains/0/{name}"), "{error}");
        assert_eq!(error.reason, Reason::OutOfRange, "{error}");
    }
}
