package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The work of this example. Replace it by yours, in two steps: what takes long and may be given up,
// and the effect.

type order struct {
	ID        string `json:"id"`
	Warehouse string `json:"warehouse"`
	PickMS    int    `json:"pick_ms"`
}

// pick takes as long as it takes and changes nothing.
func pick(ctx context.Context, o order) error {
	return sleep(ctx, time.Duration(o.PickMS)*time.Millisecond)
}

// ship is the effect: a line in the file of the warehouse. It fails if there is no such warehouse.
func ship(out string, o order) error {
	path := filepath.Join(out, filepath.Base(o.Warehouse), "shipped.txt")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(file, o.ID); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
