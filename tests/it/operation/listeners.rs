//! Addresses, Unix sockets, TLS.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
};

use dedupd::grpc::proto::{Reason, dedup_service_client::DedupServiceClient};
use tonic::transport::{self, Certificate, ClientTlsConfig, Endpoint, Identity};

use super::{SLACK, admit, connect, order, orders, request};
use crate::support::{
    certificates,
    service::{Options, Service},
};

#[tokio::test(flavor = "multi_thread")]
async fn o02_the_ports_chosen_for_port_0_are_logged() {
    let service = Service::start(&orders(""));
    assert_ne!(service.grpc_addr().port(), 0);
    assert_ne!(service.admin_addr().port(), 0);
    admit(&mut connect(&service).await, "reached").await;
}

#[test]
fn o02_an_address_in_use_is_exit_69() {
    let first = Service::start(&Options::default());
    for (flag, address) in [
        ("--grpc-listen", first.grpc_addr()),
        ("--grpc-listen", first.admin_addr()),
    ] {
        let options = Options {
            args: vec![flag.to_owned(), address.to_string()],
            ..Options::default()
        };
        let ended = Service::try_start(&options).expect_err("it must not start");
        assert_eq!(ended.exit_code, 69, "{ended:#?}");
        let named =
            |line: &String| line.contains("cannot listen") && line.contains(&address.to_string());
        assert!(ended.logs.iter().any(named), "{ended:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_a_unix_socket_is_served_guarded_and_removed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("dedupd.sock");
    let address = format!("unix:{}", path.display());
    let options = Options {
        args: vec!["--grpc-listen".to_owned(), address.clone()],
        ..orders("drain: { quiet: 0s, deadline: 5s }")
    };
    // Killed: its socket is left behind, and in nobody's way.
    let mut killed = Service::start(&options);
    killed.signal("KILL");
    assert_eq!(killed.wait_exit(SLACK), 128 + 9);
    assert!(path.exists(), "a killed process removes nothing");

    let mut service = Service::start(&options);
    let metadata = fs::symlink_metadata(&path).expect("a socket");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
    let endpoint = Endpoint::from_shared(address).expect("a Unix address");
    let mut client = DedupServiceClient::new(endpoint.connect().await.expect("it listens"));
    let verdict = &admit(&mut client, "through a file").await.verdicts[0];
    assert_eq!(verdict.reason, Reason::FirstSeen as i32);

    let second = Service::try_start(&options).expect_err("the socket is in use");
    assert_eq!(second.exit_code, 69, "{second:#?}");
    service.sigterm();
    assert_eq!(service.wait_exit(SLACK), 0);
    assert!(!path.exists(), "the socket is left behind");
}

#[test]
fn o02_a_socket_has_the_mode_that_is_asked_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("dedupd.sock");
    let options = Options {
        args: vec![
            "--grpc-listen".to_owned(),
            format!("unix:{}", path.display()),
        ],
        env: vec![("DEDUPD_GRPC_SOCKET_MODE".to_owned(), "0666".to_owned())],
        ..Options::default()
    };
    let _service = Service::start(&options);
    let metadata = fs::symlink_metadata(&path).expect("a socket");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o666);
}

fn pem(name: &str) -> String {
    certificates::path(name).display().to_string()
}

/// Connects with the certificate of that name, or none, and admits one event.
async fn admit_over_tls(service: &Service, certificate: Option<&str>) -> Result<Reason, String> {
    let read = |name: &str| fs::read(pem(name)).expect("a file of the tests");
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.pem")));
    if let Some(name) = certificate {
        let (certificate, key) = (read(&format!("{name}.pem")), read(&format!("{name}.key")));
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let url = service.grpc_url().replace("http:", "https:");
    let connected = async {
        let endpoint = Endpoint::from_shared(url)?.tls_config(tls)?;
        Ok::<_, transport::Error>(DedupServiceClient::new(endpoint.connect().await?))
    };
    let mut client = connected.await.map_err(|error| format!("{error:?}"))?;
    let request = request("orders", vec![order(certificate.unwrap_or("anonymous"))]);
    let answer = client
        .admit(request)
        .await
        .map_err(|status| format!("{status:?}"))?;
    Ok(answer.into_inner().verdicts[0].reason())
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_tls_is_for_tcp_and_a_client_ca_makes_it_mutual() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = format!("unix:{}", directory.path().join("dedupd.sock").display());
    let files = format!(
        "cert_file: {}, key_file: {}",
        pem("server.pem"),
        pem("server.key")
    );
    let rows = [
        (files.clone(), [Ok(()), Ok(()), Ok(())]),
        (
            format!("{files}, client_ca_file: {}", pem("ca.pem")),
            [Err(()), Ok(()), Err(())],
        ),
    ];
    for (files, expected) in rows {
        let config = orders(&format!(
            "drain: {{ quiet: 0s }}\nlisten: {{ tls: {{ {files} }} }}"
        ));
        let args = vec!["--grpc-listen".to_owned(), socket.clone()];
        let mut service = Service::start(&Options { args, ..config });
        for (certificate, expected) in [None, Some("client"), Some("stranger")]
            .into_iter()
            .zip(expected)
        {
            let admitted = admit_over_tls(&service, certificate).await;
            let context = format!("{files}: {certificate:?}: {admitted:?}");
            assert_eq!(
                admitted.map_err(drop),
                expected.map(|()| Reason::FirstSeen),
                "{context}"
            );
        }
        let plain = match DedupServiceClient::connect(service.grpc_url()).await {
            Ok(mut client) => client
                .admit(request("orders", vec![order("plain")]))
                .await
                .map_err(drop),
            Err(_) => Err(()),
        };
        assert!(plain.is_err(), "{files}: {plain:?}");
        let endpoint = Endpoint::from_shared(socket.clone()).expect("a Unix address");
        let mut client = DedupServiceClient::new(endpoint.connect().await.expect("it listens"));
        admit(&mut client, "through a file").await;
        service.sigterm();
        assert_eq!(service.wait_exit(SLACK), 0);
    }
}

#[test]
fn o02_tls_files_that_cannot_be_used_are_exit_64() {
    let check = |cert_file: &str, key_file: &str, expected: &str| {
        let tls = format!("listen: {{ tls: {{ cert_file: {cert_file}, key_file: {key_file} }} }}");
        let ended = Service::try_start(&orders(&tls)).expect_err("it must not start");
        assert_eq!(ended.exit_code, 64, "{ended:#?}");
        assert!(
            ended.logs.iter().any(|line| line.contains(expected)),
            "{expected}: {ended:#?}"
        );
    };
    check("/no/such.pem", &pem("server.key"), "/no/such.pem");
    check(&pem("server.key"), &pem("server.key"), "listen.tls");
    check(&pem("server.pem"), &pem("client.key"), "listen.tls");
}
