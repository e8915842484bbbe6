package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"weightfs/internal/testrel"
)

// checkTruth compares the copies of a release's views with closed forms: its files, the tensors of bf16, the blocks of experts/native.
// What is no tensor there (headers, configurations, the other views) is only compared with itself, in every round.
func checkTruth(dir string, r *testrel.Release) error {
	for i := range r.Files {
		if err := equalFile(filepath.Join(dir, "release", r.Files[i].Path), r.Files[i].Bytes()); err != nil {
			return err
		}
	}
	if err := checkTensors(filepath.Join(dir, "bf16"), r); err != nil {
		return err
	}
	return checkBlocks(filepath.Join(dir, "experts/native"), r)
}

func equalFile(name string, want []byte) error {
	got, err := os.ReadFile(name)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s is not what the release has", name)
	}
	return err
}

// checkTensors compares every tensor of a model directory with the release's truth.
func checkTensors(dir string, r *testrel.Release) error {
	shards, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(shards) == 0 {
		return fmt.Errorf("%s has %d shards: %w", dir, len(shards), err)
	}
	for _, name := range shards {
		file, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		n := 8 + binary.LittleEndian.Uint64(file)
		var header map[string]struct {
			Offsets [2]uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(file[8:n], &header); err != nil {
			return err
		}
		delete(header, "__metadata__")
		for tensor, h := range header {
			t := r.Truth(tensor)
			if t == nil || !bytes.Equal(file[n+h.Offsets[0]:n+h.Offsets[1]], t.Bytes()) {
				return fmt.Errorf("%s: %s is not the truth", name, tensor)
			}
		}
	}
	return nil
}

// blocks is the part of manifest.json that says where the parts of a block come from.
type blocks struct {
	File     string `json:"file"`
	Block    int    `json:"blockByteLength"`
	Layers   []int  `json:"layers"`
	PerLayer int    `json:"expertsPerLayer"`
	Parts    []struct {
		Offset int    `json:"offset"`
		Length int    `json:"byteLength"`
		Tensor string `json:"tensor"`
	} `json:"parts"`
	MTP *blocks `json:"mtp"`
}

// checkBlocks compares every block with the tensors it is made of; a release without experts has none.
func checkBlocks(dir string, r *testrel.Release) error {
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if os.IsNotExist(err) {
		return nil
	}
	var m *blocks
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	for ; err == nil && m != nil; m = m.MTP {
		err = m.check(dir, r)
	}
	return err
}

func (m *blocks) check(dir string, r *testrel.Release) error {
	var want []byte
	for _, layer := range m.Layers {
		for e := range m.PerLayer {
			block := make([]byte, m.Block)
			for _, p := range m.Parts {
				name, at := strings.ReplaceAll(p.Tensor, "{layer}", strconv.Itoa(layer)), int64(0)
				if !strings.Contains(name, "{expert}") {
					at = int64(e) * int64(p.Length)
				}
				t := r.Tensor(strings.ReplaceAll(name, "{expert}", strconv.Itoa(e)))
				if t == nil {
					return fmt.Errorf("%s: the release has no %s", dir, name)
				}
				if _, err := t.ReadAt(block[p.Offset:p.Offset+p.Length], at); err != nil {
					return err
				}
			}
			want = append(want, block...)
		}
	}
	return equalFile(filepath.Join(dir, m.File), want)
}
