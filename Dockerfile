# The images of gshare: docker build --target gshare-node -t gshare-node:dev .    and the same with gshare-scheduler.
# Pin the bases by digest in a build of your own that others run: a tag may move.
FROM golang:1.26.8-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/gshare-node ./cmd/gshare && hack/hook.sh build /out/hook
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/ ./cmd/gshare-scheduler

# A C library is all that it needs: NVIDIA's container runtime brings NVML and MPS.
FROM gcr.io/distroless/base-debian12 AS gshare-node
COPY --from=build /out/gshare-node /out/gshare /usr/local/bin/
COPY --from=build /out/hook/libgshare.so /usr/lib/gshare/libgshare.so
ENTRYPOINT ["gshare-node"]

FROM gcr.io/distroless/static-debian12:nonroot AS gshare-scheduler
COPY --from=build /out/gshare-scheduler /usr/local/bin/
ENTRYPOINT ["gshare-scheduler"]
