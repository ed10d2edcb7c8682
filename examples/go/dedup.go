package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "example.com/warehouse/dedupd/v1"
)

// The deadline is for all attempts of a call together. Admit may be retried because every attempt
// carries the same request id; settling may be retried because it says so if it was done before.
const serviceConfig = `{
  "methodConfig": [{
    "name": [{"service": "dedupd.v1.DedupService"}],
    "timeout": "5s",
    "waitForReady": true,
    "retryPolicy": {
      "maxAttempts": 5,
      "initialBackoff": "0.05s",
      "maxBackoff": "1s",
      "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]
    }
  }]
}`

// How long to wait before a call is made once more after all its attempts have failed.
const callAgain = 500 * time.Millisecond

type dedup struct {
	client    pb.DedupServiceClient
	namespace string
}

func connect(address, namespace string) (*dedup, error) {
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = 2 * time.Second // The default waits up to two minutes.
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true,
		}),
	)
	if err != nil {
		return nil, err
	}
	return &dedup{pb.NewDedupServiceClient(conn), namespace}, nil
}

// admit asks about a batch, and again under the same request id until there is an answer.
func (d *dedup) admit(ctx context.Context, events []*pb.Event) (*pb.AdmitResponse, error) {
	request := &pb.AdmitRequest{
		Namespace: d.namespace,
		RequestId: uuid.NewString(),
		Events:    events,
	}
	for {
		response, err := d.client.Admit(ctx, request)
		switch status.Code(err) {
		case codes.OK:
			return response, nil
		case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
			if err := sleep(ctx, callAgain); err != nil {
				return nil, err
			}
		default:
			return nil, err // Wrong as a whole, such as a namespace that is not configured.
		}
	}
}

// confirm, release and renew take no cancellation: what was begun is brought to its end.

func (d *dedup) confirm(claim []byte) pb.SettleOutcome {
	response, err := d.client.Confirm(context.Background(), &pb.ConfirmRequest{Claims: [][]byte{claim}})
	if err != nil {
		return pb.SettleOutcome_SETTLE_OUTCOME_STORE_UNAVAILABLE // To be tried again, too.
	}
	return response.Outcomes[0]
}

func (d *dedup) release(claims ...[]byte) {
	// If this fails, the leases run out.
	_, _ = d.client.Release(context.Background(), &pb.ReleaseRequest{Claims: claims})
}

func (d *dedup) renew(claims [][]byte) []pb.SettleOutcome {
	response, err := d.client.Renew(context.Background(), &pb.RenewRequest{Claims: claims})
	if err != nil {
		return nil
	}
	return response.Outcomes
}

func sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}
