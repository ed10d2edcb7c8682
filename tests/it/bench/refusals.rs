//! What cannot be measured ends in words and with an exit code.

use super::{check_fails, end, service, start, wait_for_events};

#[test]
fn options_that_make_no_sense_are_refused() {
    for (arguments, why) in [
        (
            "--rate 0",
            "--rate is in events a second, from 0.001 to 1000000000",
        ),
        ("--rate=-5", "--rate is in events"),
        ("--rate many", "--rate"),
        ("--rate inf", "--rate is in events"),
        ("--rate 1e-9", "--rate is in events"),
        ("--rate 2e9", "--rate is in events"),
        ("--duration 0s", "--duration is more than 0"),
        ("--duration 5", "not a duration"),
        ("--batch 0", "--batch is at least 1"),
        ("--streams 0", "--streams is at least 1"),
        ("--in-flight 0", "--in-flight is at least 1"),
        ("--threads 0", "--threads is at least 1"),
        ("--subjects 0", "--subjects is at least 1"),
        ("--repeat-within 0", "--repeat-within is at least 1"),
        (
            "--streams 2 --connections 3",
            "--connections is at most --streams",
        ),
        (
            "--batch 100000 --in-flight 1000",
            "--batch times --streams times --in-flight",
        ),
        (
            "--duplicates 1",
            "--duplicates is a share from 0 to less than 1",
        ),
        ("--duplicates=-0.1", "--duplicates is a share"),
        ("--duplicates 0.5 --fresh", "cannot be used with"),
        ("--confirm --omit-claims", "cannot be used with"),
        ("--kind boats", "boats"),
        ("--targets here", "--target"),
    ] {
        check_fails(&end(start(arguments)), 64, why);
    }
}

#[test]
fn a_service_that_is_not_there_is_told() {
    let address = service(None).grpc_addr(); // It has ended.
    for (target, why) in [
        (address.to_string(), "cannot reach"),
        ("unix:/nowhere.sock".to_owned(), "cannot reach"),
        (format!("https://{address}"), "TLS is not spoken here"),
    ] {
        check_fails(&end(start(&format!("--target {target}"))), 1, why);
    }
}

#[test]
fn a_service_that_refuses_ends_the_load() {
    let service = service(None);
    let target = service.grpc_addr();
    for (arguments, why) in [
        ("--namespace nowhere", "there is no namespace"),
        ("--unary --namespace nowhere", "there is no namespace"),
        (
            "--batch 50000",
            "the service ended the load: InvalidArgument",
        ),
        ("--server-pid 4194305", "no CPU time of process 4194305"),
    ] {
        check_fails(
            &end(start(&format!("--target {target} {arguments}"))),
            1,
            why,
        );
    }
}

#[test]
fn a_service_that_goes_away_ends_the_load() {
    for form in ["", "--unary", "--rate 1000 --batch 10"] {
        let mut service = service(None);
        let load = start(&format!(
            "--target {} --kind keyed --duration 1h {form}",
            service.grpc_addr()
        ));
        wait_for_events(&service, "events");
        service.signal("KILL");
        service.wait_exit(crate::client::PATIENCE);
        check_fails(&end(load), 1, "the service ended the load: ");
    }
}
