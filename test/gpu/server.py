#!/usr/bin/env python3
"""A model server in PyTorch that speaks the Open Inference Protocol, for gshare profile and gshare serve.

    server.py NAME [--address HOST:PORT]

NAME is convolution or transformer, with random weights. A row of a request is the number of a picture that the server has on the GPU for
the convolution net, and a text of 128 tokens for the transformer. It listens on $HOST:$PORT unless an address is given.
"""

import argparse
import http.server
import json
import os
import threading

import torch
from torch import nn

import workloads

PICTURES, TOKENS, WORDS, LARGEST_BATCH = 64, 128, 30522, 8


class Convolution:
    shape = [1]

    def __init__(self):
        self.net = workloads.convolution_net()
        self.pictures = torch.randn(PICTURES, 3, 224, 224, device="cuda", dtype=torch.float16)

    def infer(self, rows):
        return self.net(self.pictures[rows.flatten() % PICTURES]).argmax(1)


class Transformer:
    shape = [TOKENS]

    def __init__(self):
        self.words = nn.Embedding(WORDS, 768).cuda().half().eval()
        self.net = workloads.encoder().cuda().half().eval()

    def infer(self, rows):
        return self.net(self.words(rows % WORDS)).mean((1, 2)).argsort()


class Model:
    def __init__(self, name):
        self.name, self.model, self.turn = name, {"convolution": Convolution, "transformer": Transformer}[name](), threading.Lock()
        for rows in range(1, LARGEST_BATCH + 1):  # the first batch of each size loads code
            self.infer([[0] * self.model.shape[0]] * rows)

    def infer(self, rows):
        """Returns a number for each row, which is a list of integers."""
        with self.turn, torch.no_grad():
            return self.model.infer(torch.tensor(rows, device="cuda")).tolist()

    def metadata(self):
        return {"name": self.name, "versions": ["1"], "platform": "pytorch",
                "inputs": [{"name": "rows", "datatype": "INT64", "shape": [-1, *self.model.shape]}],
                "outputs": [{"name": "numbers", "datatype": "INT64", "shape": [-1, 1]}]}

    def answer(self, request):
        given = request["inputs"][0]
        columns, values = given["shape"][1], flat(given["data"])
        numbers = self.infer([values[at:at + columns] for at in range(0, len(values), columns)])
        return {"model_name": self.name, "model_version": "1",
                "outputs": [{"name": "numbers", "datatype": "INT64", "shape": [len(numbers), 1], "data": numbers}]}


def flat(values):
    """Returns the numbers of nested lists."""
    return [n for v in values for n in (flat(v) if isinstance(v, list) else [v])]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the header and the body are sent together
    model = None

    def send(self, code, answer):
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = "/v2/models/" + self.model.name
        found = {"/v2/health/ready": {}, "/v2/health/live": {}, path + "/ready": {}, path: self.model.metadata()}.get(self.path)
        self.send(404 if found is None else 200, found or {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != f"/v2/models/{self.model.name}/infer":
            return self.send(404, {"error": "no such path"})
        try:
            answer = self.model.answer(json.loads(body))
        except (ValueError, KeyError, IndexError, TypeError) as e:
            return self.send(400, {"error": str(e)})
        return self.send(200, answer)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["convolution", "transformer"])
    parser.add_argument("--address", default=f"{os.environ.get('HOST', '127.0.0.1')}:{os.environ.get('PORT', '8080')}")
    arguments = parser.parse_args()
    host, port = arguments.address.rsplit(":", 1)
    Handler.model = Model(arguments.name)
    http.server.ThreadingHTTPServer.request_queue_size = 128
    http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
