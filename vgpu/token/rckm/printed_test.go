package rckm_test

import (
	"github.com/gshare-dev/gshare/lab/elastic"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

func init() { rckm.Printed = elastic.PublishedAlgorithm }
